"""`manifest`: what a platform is to be asked for, from the settings that the bot runs with."""

import json
from enum import StrEnum

from bot.settings import Settings
from channels.slack.manifest import manifest as slack_manifest


class Platform(StrEnum):
    """Those that ask for one."""

    SLACK = "slack"


def manifest(platform: Platform, settings: Settings) -> str:
    """What to paste, or to open, where an app is made or invited."""
    match platform:
        case Platform.SLACK:
            return json.dumps(slack_manifest(prompts=settings.prompts), indent=2)
