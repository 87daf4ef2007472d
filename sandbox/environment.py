"""What a program that is tried has of the environment: nothing that is a setting of whoever tries it."""

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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTING_PREFIXES)}
    return {**kept, "PORT": "0"}  # several programs at once have one machine
