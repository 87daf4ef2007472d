"""`manifest`: what a platform is to be asked for, from the settings that the bot runs with."""

import json

from bot.settings.access import AccessSection
from bot.setup import Platform
from core.errors import SettingsError

#: Stands in a manifest for the address of the bot's HTTP server, which only its operator knows.
YOUR_ADDRESS = "https://your-bot.example.com"


def manifest(platform: Platform, settings: AccessSection) -> str:
    """What to paste, or to open, where an app is made or invited.

    Raises:
        SettingsError: a setting that it takes is missing or wrong.
    """
    match platform:
        case Platform.SLACK:
            from channels.slack import manifest as slack  # noqa: PLC0415 - of one platform alone

            address = YOUR_ADDRESS if settings.slack_mode == "http" else ""
            back = YOUR_ADDRESS if settings.slack_client_id else ""
            return json.dumps(slack.manifest(prompts=settings.prompts, address=address, back=back), indent=2)
        case Platform.DISCORD:
            from channels.discord import invite  # noqa: PLC0415 - of one platform alone

            if settings.discord is None:
                raise SettingsError("DISCORD_BOT_TOKEN is not set: it tells the bot's id, which is part of the link")
            token, auto_thread = settings.discord.bot_token, settings.discord.auto_thread
            return invite.invite_link(invite.application_id_of(token), auto_thread=auto_thread)
