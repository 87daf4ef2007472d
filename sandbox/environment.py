"""Environment variables of a program under test."""

import os

SETTING_PREFIXES = (
    "SLACK_",
    "DISCORD_",
    "OPENAI_",
    "ANTHROPIC_",
    "GOOGLE_",
    "GEMINI_",
    "MODEL",
    "DATABASE_",
    "AGENT",
    "TOOLS",
    "DYNO",
    "LANGUAGE",
    "REPLY_",
    "REPLY_WITHOUT_MENTION",
    "LOG_",
    "METRICS",
    "OTEL_",
    "PORT",
    "SECRET_KEY",
    "LEASE_",
    "STOP_",
    "TURN",
)


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the bot's settings, and with `PORT=0` (any free port)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTING_PREFIXES)}
    return {**environment, "PORT": "0"}  # several programs run on one machine
