"""What a program that is tested has of the environment: nothing that is a setting of whoever runs the tests."""

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
    "FOLLOW",
    "LOG_",
    "METRICS",
    "OTEL_",
    "PORT",
    "SECRET_KEY",
)


def inherited() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "PORT": "0"}  # several programs at once have one machine
