"""`manifest`: what a platform is to be asked for, from the settings that the bot runs with."""

import json
from enum import StrEnum

from bot.settings import Settings
from channels.discord import invite
from channels.slack.manifest import manifest as slack_manifest
from core.errors import SettingsError


class Platform(StrEnum):
    """Those that ask for one."""

    SLACK = "slack"
    DISCORD = "discord"


def manifest(platform: Platform, settings: Settings) -> str:
    """What to paste where an app is made, or the link to open to invite it.

    Raises:
        SettingsError: the settings do not tell which app is to be invited.
    """
    match platform:
        case Platform.SLACK:
            return json.dumps(slack_manifest(prompts=settings.prompts), indent=2)
        case Platform.DISCORD:
            if settings.discord is None:
                raise SettingsError("DISCORD_BOT_TOKEN is missing: it tells which app the link invites")
            application = invite.application_of(settings.discord.bot_token)
            return invite.link(application, auto_thread=settings.discord_auto_thread)
