"""Gateway connection of one shard, with reconnection."""

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

from channels.discord.client.auth import MAX_WAIT_SECONDS
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds without data after which a connection is closed. Discord: it sends some every 41 seconds.
HEARTBEAT_TIMEOUT_SECONDS = 60.0

#: Seconds between heartbeats. Discord: about 41.
HEARTBEAT_SECONDS = 45.0

#: Seconds that closing a connection may take.
CLOSE_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard of a gateway connection, which receives the events of some of the servers.

    Attributes:
        acquire_slot: awaited with `id` before a session starts; returns when Discord allows a new session.
    """

    id: int
    count: int
    acquire_slot: Callable[[int], Awaitable[None]]


class GatewayClient(discord.Client):
    """Client of one gateway connection; discord.py resumes a lost session by itself.

    Args:
        on_connected: called when a session starts, which may happen at any time; not when a session is resumed.
        on_event: called with each event or heartbeat of a session, and when a session is resumed.
    """

    def __init__(
        self,
        *,
        shard: Shard,
        intents: discord.Intents,
        on_connected: Callable[[], None],
        on_event: Callable[[], None],
        trace: aiohttp.TraceConfig,
    ) -> None:
        super().__init__(
            intents=intents,
            http_trace=trace,
            shard_id=shard.id,
            shard_count=shard.count,
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,  # no message is looked up in a cache
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=0.0,  # no handler waits for the list of servers
            heartbeat_timeout=HEARTBEAT_TIMEOUT_SECONDS,
            max_ratelimit_timeout=MAX_WAIT_SECONDS,
            enable_debug_events=True,  # `on_socket_raw_receive`
        )
        self._shard = shard
        self._on_connected = on_connected
        self._on_event = on_event
        self.has_session = False

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """Wait until Discord allows this shard to start a session.

        discord.py calls this method before each session. Its own version only delays later sessions of one client, and
        not the first.
        """
        await self._shard.acquire_slot(self._shard.id)

    async def on_connect(self) -> None:
        log.info("the gateway has a session")
        self.has_session = True
        self._on_connected()

    async def on_resumed(self) -> None:
        log.info("the gateway has resumed its session")
        self.has_session = True
        self._on_event()

    async def on_disconnect(self) -> None:
        log.info("the gateway connection is lost")
        self.has_session = False

    async def on_socket_raw_receive(self, _message: str) -> None:
        """Call the callback `on_event`, if a session is open.

        discord.py calls this method for any data from the gateway, including heartbeat acknowledgements.
        """
        if self.has_session:
            self._on_event()

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        """Log the error of an event handler without the message text, which discord.py would log."""
        log.error("%s: %s", event_method, format_error(sys.exception() or RuntimeError()))


class GatewayReconnector:
    """Connects to the gateway, and reconnects by a new client whenever a client ends.

    Args:
        make_client: takes the callbacks `on_connected` and `on_event`; returns a new, logged-in client that calls them,
            and the gateway's URL.
        on_reconnect: called when a session starts, except the first one after `start`. The argument is the time of the
            last event of the previous session. Discord does not send the events in between.

    Attributes:
        last_event_at: the time of the last event or heartbeat since `start`; 0 before the first.
    """

    def __init__(
        self,
        make_client: Callable[[Callable[[], None], Callable[[], None]], Awaitable[tuple[GatewayClient, str]]],
        *,
        on_reconnect: Callable[[float], None],
    ) -> None:
        self.last_event_at = 0.0
        self._make_client = make_client
        self._on_reconnect = on_reconnect
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_started = False

    async def start(self) -> None:
        """Connect, and return once a session has started. If cancelled, disconnect.

        A failure is logged and retried, with growing pauses and without a limit.
        """
        self._ready.clear()
        self.last_event_at = 0.0
        self._is_started = True
        self._start_task()
        try:
            await self._ready.wait()
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the connection, wait until it is closed, and do not open a new one."""
        self._is_started = False
        await self._cancel_task()

    async def reconnect(self) -> None:
        """Close the connection, wait until it is closed, and begin to open a new one.

        Before `start` and after `stop`, no new one is opened.
        """
        await self._cancel_task()
        if self._is_started and (self._task is None or self._task.done()):
            self._start_task()

    async def _cancel_task(self) -> None:
        task = self._task
        if task is None:
            return
        if not task.cancelling():  # a second cancellation would interrupt the close
            task.cancel()
        while not (await asyncio.wait([task], timeout=2 * CLOSE_TIMEOUT_SECONDS))[0]:
            task.cancel()  # `asyncio.wait_for` in discord.py may lose a cancellation on Python 3.11

    def _start_task(self) -> None:
        self._task = asyncio.create_task(self._reconnect_forever(), name="discord gateway")

    def _on_connected(self) -> None:
        lost_at = self.last_event_at
        self.last_event_at = time.time()
        self._ready.set()
        if lost_at:
            self._on_reconnect(lost_at)

    def _on_event(self) -> None:
        self.last_event_at = time.time()

    async def _reconnect_forever(self) -> None:
        # Discord resets the token of a bot that identifies more than 1000 times a day. The longest waits average 512 s.
        backoff = ExponentialBackoff()
        while True:
            try:
                await self._connect()
            except Exception as error:
                log.warning("the connection to Discord's gateway failed: %s", format_error(error))
            await asyncio.sleep(backoff.delay())

    async def _connect(self) -> None:
        """Connect a new client, wait until its connection ends, and close the client."""
        client, address = await self._make_client(self._on_connected, self._on_event)
        # Discord: clients fetch the gateway address. discord.py has a fixed one for the whole process.
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(address)
        try:
            await client.connect()
        finally:
            await _close_client(client)


async def _close_client(client: GatewayClient) -> None:
    """Set the bot's presence to invisible, and close its client; failures are logged.

    If this fails or takes over `CLOSE_TIMEOUT_SECONDS`, only the HTTP client is closed. Discord shows an invisible bot
    as offline at once, even if it does not receive the close.
    """
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
            if client.has_session:
                await client.change_presence(status=discord.Status.invisible)
            await client.close()
    except Exception as error:
        log.info("the gateway connection was not closed properly: %s", format_error(error))
        await client.http.close()


def make_intents(*, message_content: bool, members: bool) -> discord.Intents:
    """Return the gateway intents of the bot.

    Discord: a client that asks for a disabled intent, such as `message_content` or `members`, gets no connection.
    """
    return discord.Intents(
        guilds=True, guild_messages=True, dm_messages=True, message_content=message_content, members=members
    )
