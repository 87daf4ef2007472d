"""Fixtures for attacks on the bot through both platforms' real clients."""

from collections.abc import AsyncIterator

import pytest

from channels.slack.manifest import manifest
from channels.slack.settings import DEFAULT_PROMPTS
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackSandbox
from tests.channels.discord.conftest import clean_discord_library, run_discord

__all__ = ["clean_discord_library"]


@pytest.fixture
async def slack(request: pytest.FixtureRequest) -> AsyncIterator[SlackSandbox]:
    async with SlackSandbox(rate_limits=False) as sandbox:
        if getattr(request, "param", "socket") == "http":
            sandbox.install(manifest(prompts=DEFAULT_PROMPTS, address="https://bot.example"))
        yield sandbox


@pytest.fixture
async def server() -> AsyncIterator[DiscordSandbox]:
    async with run_discord(rate_limits=False) as sandbox:
        yield sandbox
