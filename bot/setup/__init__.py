"""Set-up: the wizard, `.env`, the Slack manifest, and a check of each setting."""

from enum import StrEnum


class SetupPlatform(StrEnum):
    """Platform that the bot can be set up for."""

    SLACK = "slack"
    DISCORD = "discord"
