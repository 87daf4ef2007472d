"""What a program that is tried has of the environment: nothing that is a setting of whoever tries it."""

import os

FOREIGN = (
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


def inherited() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "PORT": "0"}  # several programs at once have one machine
