"""`manifest`: what a platform is to be asked for, from the settings that the bot runs with."""

import json
from enum import StrEnum

from bot.settings import Settings
from channels.slack.manifest import manifest as slack_manifest

#: Stands in a manifest for the address of the bot's HTTP server, which only its operator knows.
YOUR_ADDRESS = "https://your-bot.example.com"


class Platform(StrEnum):
    """Those that ask for one."""

    SLACK = "slack"


def manifest(platform: Platform, settings: Settings) -> str:
    """What to paste, or to open, where an app is made or invited."""
    match platform:
        case Platform.SLACK:
            address = YOUR_ADDRESS if settings.slack_mode == "http" else ""
            return json.dumps(slack_manifest(prompts=settings.prompts, address=address), indent=2)
