"""Fixtures that connect discord.py to the local Discord."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import discord
import pytest
import yarl
from discord import app_commands

from chatrig.discord import DiscordSimulator


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    """Yield a local Discord that runs 20 times as fast: 5 s take 250 ms."""
    async with DiscordSimulator(speed=20) as simulator:
        yield simulator


def create_intents(*names: str) -> discord.Intents:
    intents = discord.Intents.none()
    for name in ("guilds", "messages", *names):
        setattr(intents, name, True)
    return intents


class RecordingClient(discord.Client):
    """discord.py client that records received messages and events.

    Attributes:
        received: the messages of other users.
        events: the names of connection events.
        resumed: set when a session was resumed.
    """

    def __init__(self, intents: discord.Intents, **options: Any) -> None:
        super().__init__(intents=intents, max_messages=None, guild_ready_timeout=0.1, **options)
        self.tree = app_commands.CommandTree(self)
        self.received: asyncio.Queue[discord.Message] = asyncio.Queue()
        self.events: list[str] = []
        self.resumed = asyncio.Event()

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Return at once: discord.py would wait for 5 s between sessions."""

    async def setup_hook(self) -> None:
        if self.tree.get_commands():
            await self.tree.sync()

    async def on_message(self, message: discord.Message) -> None:
        if self.user is not None and message.author.id != self.user.id:
            await self.received.put(message)

    async def on_ready(self) -> None:
        self.events.append("ready")

    async def on_resumed(self) -> None:
        self.events.append("resumed")
        self.resumed.set()

    async def next_message(self) -> discord.Message:
        return await asyncio.wait_for(self.received.get(), 5)

    def get_simulator_channel(self, simulator: DiscordSimulator, name: str) -> Any:
        """Return discord.py's object of the simulator channel with this name."""
        return self.get_channel(int(simulator.channels[name].id))


async def call_route(server: DiscordSimulator, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call a REST route as the bot, and return the HTTP status and the JSON.

    The JSON is None for 204.
    """
    headers = {"Authorization": f"Bot {server.bot_token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, f"{server.api_url}{path}", json=body) as response,
    ):
        return response.status, await response.json() if response.status != 204 else None


async def get_refusal(call: Any) -> tuple[int, int]:
    """Await a call that Discord refuses, and return HTTP status and error code."""
    with pytest.raises(discord.HTTPException) as refused:
        await call
    return refused.value.status, refused.value.code


Connect = Callable[..., Awaitable[RecordingClient]]


def patch_addresses(simulator: DiscordSimulator, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(discord.http.Route, "BASE", simulator.api_url)
    patch.setattr(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(simulator.gateway_url))


@pytest.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    """Yield a function that connects a client to a simulator; close them at the end."""
    running: list[tuple[RecordingClient, asyncio.Task[None]]] = []

    async def connect_bot(
        simulator: DiscordSimulator, *, bot: RecordingClient | None = None, intents: discord.Intents | None = None
    ) -> RecordingClient:
        patch_addresses(simulator, monkeypatch)
        bot = bot or RecordingClient(intents or create_intents("message_content", "reactions"))
        task = asyncio.create_task(bot.start(simulator.bot_token))
        running.append((bot, task))
        await simulator.wait_for(lambda: simulator.connection_count or task.done())
        if task.done():
            await task
        await asyncio.wait_for(bot.wait_until_ready(), 5)
        return bot

    yield connect_bot
    for bot, task in running:
        await bot.close()
        await asyncio.gather(task, return_exceptions=True)
