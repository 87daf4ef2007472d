"""Fixtures: the whole bot with real clients against the local platforms."""

from collections.abc import AsyncIterator

import pytest

from channels.slack.manifest import manifest
from channels.slack.settings import DEFAULT_PROMPTS
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackSandbox
from tests.channels.discord.conftest import discord_of, nothing_stays_and_nobody_waits

__all__ = ["nothing_stays_and_nobody_waits"]


@pytest.fixture
async def slack(request: pytest.FixtureRequest) -> AsyncIterator[SlackSandbox]:
    async with SlackSandbox(rate_limits=False) as sandbox:
        if getattr(request, "param", "socket") == "http":
            sandbox.install(manifest(prompts=DEFAULT_PROMPTS, address="https://bot.example"))
        yield sandbox


@pytest.fixture
async def server() -> AsyncIterator[DiscordSandbox]:
    async with discord_of(rate_limits=False) as sandbox:
        yield sandbox
