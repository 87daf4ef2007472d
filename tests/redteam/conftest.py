"""Fixtures for attacks on the bot through both platforms' real clients."""

from collections.abc import AsyncIterator

import pytest

from channels.slack.manifest import manifest
from channels.slack.settings import DEFAULT_PROMPTS
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from tests.channels.discord.conftest import clean_discord_library, run_discord

__all__ = ["clean_discord_library"]


@pytest.fixture
async def slack(request: pytest.FixtureRequest) -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(rate_limits=False) as simulator:
        if getattr(request, "param", "socket") == "http":
            simulator.install(manifest(prompts=DEFAULT_PROMPTS, address="https://bot.example"))
        yield simulator


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with run_discord(rate_limits=False) as simulator:
        yield simulator
