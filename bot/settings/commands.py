"""Settings of the chat commands."""

from typing import Annotated

from pydantic import AfterValidator

from bot.settings.base import SettingsSection
from channels.commands.syntax import validate_command_prefix


class CommandSection(SettingsSection):
    """Settings of the chat commands, on both platforms: the prefix of slash commands."""

    command_prefix: Annotated[str, AfterValidator(validate_command_prefix)] = ""
