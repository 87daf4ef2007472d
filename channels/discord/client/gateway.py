"""The gateway: the connection over which Discord tells what happens."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import discord
import yarl
from discord.backoff import ExponentialBackoff
from discord.gateway import DiscordWebSocket

from channels.discord.client.auth import LONG_WAIT
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds of silence after which a connection is given up as dead. Discord: it speaks every 41 seconds at least.
SILENCE = 60.0

#: Discord: a heartbeat is answered every 41 seconds.
PULSE = 45.0

#: Seconds that saying goodbye to Discord may take.
CLOSE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of all servers a connection hears.

    Attributes:
        id: its number, from 0.
        of: how many there are.
        passed: awaited with the number before a session is begun.
    """

    id: int
    of: int
    passed: Callable[[int], Awaitable[None]]


class GatewayClient(discord.Client):
    """One client's life on the gateway. discord.py resumes a lost session by itself.

    Args:
        shard: the shard of this connection.
        on_connected: called with each new session. Discord may begin one anew at any time.
        on_sign: called with each sign of life of a session.
        trace: see `DiscordApi.trace`.

    Attributes:
        is_up: whether it has a session.
    """

    def __init__(
        self,
        *,
        shard: Shard,
        intents: discord.Intents,
        on_connected: Callable[[], None],
        on_sign: Callable[[], None],
        trace: aiohttp.TraceConfig,
    ) -> None:
        super().__init__(
            intents=intents,
            http_trace=trace,
            shard_id=shard.id,
            shard_count=shard.of,
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,  # no message is looked up in a cache
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0.0,  # nothing waits for the list of servers
            heartbeat_timeout=SILENCE,
            max_ratelimit_timeout=LONG_WAIT,
            enable_debug_events=True,  # `on_socket_raw_receive`
        )
        self._shard = shard
        self._on_connected = on_connected
        self._on_sign = on_sign
        self.is_up = False

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """Wait for this shard's turn: discord.py paces each client by itself, and not before its first session."""
        del initial
        await self._shard.passed(self._shard.id)

    async def on_connect(self) -> None:
        log.info("the gateway has a session")
        self.is_up = True
        self._on_connected()

    async def on_resumed(self) -> None:
        log.info("the gateway has resumed its session")
        self.is_up = True
        self._on_sign()

    async def on_disconnect(self) -> None:
        log.info("the gateway's connection is gone")
        self.is_up = False

    async def on_socket_raw_receive(self, _message: str) -> None:
        """Note any data, heartbeat acknowledgements included, once the session is up."""
        if self.is_up:
            self._on_sign()

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        """Log the error without the message text that discord.py would quote."""
        log.error("%s: %s", event_method, traced(sys.exception() or RuntimeError()))


class Gateway:
    """Keeps a connection: one that cannot be made is tried again, each time with a new client.

    Attributes:
        heard_at: the time of the last sign of life, in seconds since the epoch; 0 before the first.

    Args:
        make: a new client, logged in, with these for `on_connected` and `on_sign`; and the gateway's address.
        on_back: called with each session but the first, with the time (seconds since the epoch) of the last sign of
            life of the one before: Discord tells it nothing of what came in between.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], None], Callable[[], None]], Awaitable[tuple[GatewayClient, str]]],
        *,
        on_back: Callable[[float], None],
    ) -> None:
        self.heard_at = 0.0
        self._make = make
        self._on_back = on_back
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._is_meant = False

    async def start(self) -> None:
        """Return when the connection stands. Cancelled, it takes down what it has begun."""
        self._ready.clear()
        self.heard_at = 0.0
        self._is_meant = True
        self._begin()
        try:
            await self._ready.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Hang up; returns when that is done."""
        self._is_meant = False
        await self._end()

    async def reconnect(self) -> None:
        """Give up the connection for dead, and begin to make a new one, unless it was stopped meanwhile."""
        await self._end()
        if self._is_meant and (self._keeping is None or self._keeping.done()):
            self._begin()

    async def _end(self) -> None:
        keeping = self._keeping
        if keeping is None:
            return
        if not keeping.cancelling():  # else somebody else ends it, and a second time would break off the goodbye
            keeping.cancel()
        while not (await asyncio.wait([keeping], timeout=2 * CLOSE_TIMEOUT))[0]:
            keeping.cancel()  # discord.py uses `asyncio.wait_for`, which on Python 3.11 may lose that

    def _begin(self) -> None:
        self._keeping = asyncio.create_task(self._keep(), name="discord gateway")

    def _connected(self) -> None:
        lost_at, self.heard_at = self.heard_at, time.time()
        self._ready.set()
        if lost_at:
            self._on_back(lost_at)

    def _notice(self) -> None:
        self.heard_at = time.time()

    async def _keep(self) -> None:
        # Discord: a bot that identifies more than 1000 times a day loses its token. The longest waits average 512 s.
        backoff = ExponentialBackoff()
        while True:
            try:
                await self._connect()
            except Exception as error:
                log.warning("no connection to Discord's gateway: %s", traced(error))
            await asyncio.sleep(backoff.delay())

    async def _connect(self) -> None:
        """Connect; returns or raises when the connection has come to its end."""
        client, address = await self._make(self._connected, self._notice)
        # discord.py would presume an address; Discord is to be asked. It keeps one for the whole process.
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(address)
        try:
            await client.connect()
        finally:
            await _hang_up(client)


async def _hang_up(client: GatewayClient) -> None:
    """Say goodbye, so that the bot is seen to be gone. Nobody may be listening to the client any more: discord.py
    would answer the close of its own with another one, after which Discord waits for the bot to come back. Should it
    take the close for another one, the bot is not to be seen all the same.
    """
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            if client.is_up:
                await client.change_presence(status=discord.Status.invisible)
            await client.close()
    except Exception as error:
        log.info("Discord did not hear the goodbye: %s", traced(error))
        await client.http.close()


def intents(*, hears_all: bool) -> discord.Intents:
    """Return the gateway intents. Discord: a client that asks for a disabled intent gets no connection."""
    return discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=hears_all)
