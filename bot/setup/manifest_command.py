"""`manifest`: what a platform is to be asked for, from the settings that the bot runs with."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from core.errors import SettingsError
from core.models.lazy_import import Late

if TYPE_CHECKING:
    from bot.settings.access import AccessPart
    from channels.discord import invite
    from channels.slack import manifest as slack
else:
    invite, slack = Late("channels.discord.invite"), Late("channels.slack.manifest")

#: Stands in a manifest for the address of the bot's HTTP server, which only its operator knows.
YOUR_ADDRESS = "https://your-bot.example.com"


class Platform(StrEnum):
    """Those that ask for one."""

    SLACK = "slack"
    DISCORD = "discord"


def manifest(platform: Platform, settings: AccessPart) -> str:
    """What to paste, or to open, where an app is made or invited.

    Raises:
        SettingsError: a setting that it takes is missing or wrong.
    """
    match platform:
        case Platform.SLACK:
            address = YOUR_ADDRESS if settings.slack_mode == "http" else ""
            back = YOUR_ADDRESS if settings.slack_client_id else ""
            return json.dumps(slack.manifest(prompts=settings.prompts, address=address, back=back), indent=2)
        case Platform.DISCORD:
            if settings.discord is None:
                raise SettingsError("DISCORD_BOT_TOKEN is not set: it tells the bot's id, which is part of the link")
            token, auto_thread = settings.discord.bot_token, settings.discord.auto_thread
            return invite.link(invite.application_of(token), auto_thread=auto_thread)
