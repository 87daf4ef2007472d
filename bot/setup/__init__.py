"""Set-up: the wizard, `.env`, the Slack manifest, and a check of each setting."""

from enum import StrEnum


class SetupPlatform(StrEnum):
    """Platform that `parley init` and `parley manifest` can set up."""

    SLACK = "slack"
    DISCORD = "discord"
