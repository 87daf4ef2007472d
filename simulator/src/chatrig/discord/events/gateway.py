"""Gateway server: WebSocket connections, sessions and their events.

Discord: docs.discord.com/developers/events/gateway. A session outlives its connection unless the client closed the
connection with 1000 or 1001. A client that resumes the session receives the missed events.
"""

import asyncio
import json
import secrets
import sys
import zlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from time import monotonic
from typing import Any

from aiohttp import WSMsgType, web

from chatrig.discord.api.faults import DiscordFaults
from chatrig.discord.state.activity_log import DiscordActivityLog, DiscordEventRecord
from chatrig.discord.state.payloads import DiscordPayloads, Json
from chatrig.discord.state.permissions import (
    APPLICATION_FLAGS,
    GUILD_MEMBERS,
    GUILD_PRESENCES,
    GUILDS,
    PRIVILEGED_INTENTS,
    combine_bits,
)

#: The module for zstd-stream: a part of Python since 3.14.
ZSTD_MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

# Opcodes that Discord sends; `_handle_opcode` has those that a client sends.
DISPATCH, RECONNECT, INVALID_SESSION, HELLO, ACK = 0, 7, 9, 10, 11
UNKNOWN_OPCODE, DECODE_ERROR, NOT_AUTHENTICATED, BAD_TOKEN, ALREADY_AUTHENTICATED = 4001, 4002, 4003, 4004, 4005
BAD_SEQUENCE, TOO_FAST, INVALID_SHARD, INVALID_VERSION = 4007, 4008, 4010, 4012
INVALID_INTENTS, DISALLOWED_INTENTS = 4013, 4014

HEARTBEAT_SECONDS = 41.25
#: Limits of a client: bytes of a frame, and frames in a window.
MAX_FRAME_BYTES = 4096
MAX_FRAMES, FRAME_WINDOW_SECONDS = 120, 60.0
ALL_INTENTS = (1 << 26) - 1
#: Discord: a session can be resumed for "a few minutes"; real seconds at any speed.
SESSION_LIFETIME_SECONDS = 180.0
#: Delay between the request to reconnect and the close of the connection.
RECONNECT_CLOSE_SECONDS = 10.0
#: Time for a client to answer a close frame.
CLOSE_TIMEOUT_SECONDS = 1.0


#: Compresses the frames of one connection, in order.
Compressor = Callable[[bytes], bytes]


class GatewayCloseError(Exception):
    """Violation of the gateway's protocol, for which the connection is closed.

    Attributes:
        code: the WebSocket close code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def create_compressor(name: str) -> Compressor:
    """Create the compressor of a connection's frames: `zlib-stream` or `zstd-stream`.

    Discord: docs.discord.com/developers/events/gateway, "Transport Compression". All frames of a connection share one
    context; a frame ends with a flush, which does not end the zstd frame.

    Raises:
        ValueError: there is no such compression; the text names the missing package, if it is one.
    """
    if name == "zlib-stream":
        deflate = zlib.compressobj()
        return lambda data: deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH)
    if name != "zstd-stream":
        raise ValueError(f"unknown compression {name[:40]}")
    try:
        stream = import_module(ZSTD_MODULE).ZstdCompressor()
    except ImportError:
        raise ValueError(f"the simulator needs the package {ZSTD_MODULE} for zstd-stream") from None
    return lambda data: bytes(stream.compress(data, stream.FLUSH_BLOCK))


@dataclass(eq=False, slots=True)
class GatewaySession:
    """Gateway session that a client started with IDENTIFY.

    Attributes:
        intents: the requested intent bits.
        shard: shard number and shard count; the first shard receives events of DMs.
        properties: the client's connection properties.
        events: all events of the session, in order, also those not delivered yet.
        resume_count: number of RESUMEs of the session.
        heartbeat_count: number of heartbeats of the client.
        disconnected_at: monotonic time in seconds since which the session has no connection, or only a frozen one; None
            while it has one.
        close_code: the WebSocket close code of the last connection that the client ended; None before.
        status: the client's presence: `online`, `invisible`, ...
        started_at: monotonic time in seconds.
    """

    id: str
    intents: int
    shard: tuple[int, int]
    properties: Json
    events: list[DiscordEventRecord] = field(default_factory=list)
    resume_count: int = 0
    heartbeat_count: int = 0
    disconnected_at: float | None = None
    close_code: int | None = None
    status: str = "online"
    started_at: float = field(default_factory=monotonic)

    @property
    def is_expired(self) -> bool:
        """True if the session has had no connection for `SESSION_LIFETIME_SECONDS`.

        It cannot be resumed then.
        """
        return self.disconnected_at is not None and monotonic() - self.disconnected_at > SESSION_LIFETIME_SECONDS


@dataclass(eq=False, slots=True)
class GatewayConnection:
    """WebSocket connection of a gateway client.

    Attributes:
        compressor: compresses the frames to the client; None for plain text.
        outgoing_frames: frames to send, each with its earliest monotonic time in seconds.
        frame_times: arrival times of the client's frames in the last minute of the gateway's rate limit (divided by
            the simulator's `speed`).
        session: the session of the connection; None before IDENTIFY or RESUME, and after an invalid session (op 9).
        is_frozen: whether the server has stopped sending and reading.
        is_closed_by_simulator: whether the simulator closes the connection, not the client.
    """

    ws: web.WebSocketResponse
    request: web.Request
    compressor: Compressor | None
    outgoing_frames: asyncio.Queue[tuple[float, Json]] = field(default_factory=asyncio.Queue)
    frame_times: deque[float] = field(default_factory=deque)
    session: GatewaySession | None = None
    is_frozen: bool = False
    is_closed_by_simulator: bool = False


class GatewayServer:
    """WebSocket server of the gateway.

    Args:
        token: the bot's token.
        privileged_intents: names of the enabled privileged intents.
        speed: factor by which heartbeats and timeouts are faster than Discord's.

    Attributes:
        url: the WebSocket address (`ws://...`); "" before the simulator is entered.
        sessions: all sessions that were ever started.
        shards: the recommended number of shards, for `GET /gateway/bot`.
        max_concurrency: the reported number of shards that may identify at once; not enforced.
        is_guild_available: False during an outage of the server, which then has no events.
    """

    def __init__(
        self,
        activity_log: DiscordActivityLog,
        faults: DiscordFaults,
        payloads: DiscordPayloads,
        *,
        token: str,
        privileged_intents: set[str],
        speed: float,
    ) -> None:
        self._activity_log = activity_log
        self._faults = faults
        self._payloads = payloads
        self._token = token
        self._privileged_intents = privileged_intents
        self._speed = speed
        self._resumable: dict[str, GatewaySession] = {}
        self._connections: list[GatewayConnection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.sessions: list[GatewaySession] = []
        self.url = ""
        self.shards = self.max_concurrency = 1
        self.is_guild_available = True

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close(connection, 1001) for connection in list(self._connections)))

    @property
    def is_online(self) -> bool:
        """True while users see the bot as online.

        A session is then connected or can be resumed, and is not invisible.
        """
        return any(
            not session.is_expired and session.status not in ("invisible", "offline")
            for session in self._resumable.values()
        )

    @property
    def connection_count(self) -> int:
        """Number of sessions with an open connection that is not frozen."""
        return sum(session.disconnected_at is None for session in self.sessions)

    # Outgoing

    def dispatch(
        self, name: str, intent: int, data: Callable[[GatewaySession], Json], *, guild_id: str | None = None
    ) -> list[GatewaySession]:
        """Send an event to all sessions with an intent.

        A session without a connection receives the event when it is resumed.

        Args:
            intent: the bits of intents, of which a session needs one; 0 for an event that needs none.
            data: returns the event's data for a session.
            guild_id: the server of the event, which decides its shard; None for a DM.

        Returns:
            The sessions that receive the event; none for an event of the server during its outage.
        """
        if guild_id is not None and not self.is_guild_available:
            return []
        receivers = self._list_receivers(intent, guild_id)
        for session in receivers:
            self._send_event(session, name, data(session))
        return receivers

    def _list_receivers(self, intent: int, guild_id: str | None) -> list[GatewaySession]:
        """Return the sessions with an intent on the shard of a server.

        Args:
            intent: the bit of the intent; 0 for all sessions.
            guild_id: the id of the server; None for DMs.
        """
        return [
            session
            for session in self._resumable.values()
            if not session.is_expired
            and (session.intents & intent or not intent)
            and (int(guild_id or 0) >> 22) % session.shard[1] == session.shard[0]
        ]

    def _send_event(self, session: GatewaySession, name: str, data: Json) -> None:
        event = self._activity_log.record_event(session.id, name, data, len(session.events) + 1)
        session.events.append(event)
        for connection in self._connections:
            if connection.session is session:
                self._queue_event(connection, event)

    def _queue_event(self, connection: GatewayConnection, event: DiscordEventRecord) -> None:
        event.sent_at = monotonic()
        self._queue_frame(connection, DISPATCH, event.data, s=event.sequence, t=event.name)

    def _queue_frame(self, connection: GatewayConnection, op: int, data: Any = None, **fields: Any) -> None:
        frame = {"op": op, "d": data, "s": None, "t": None, **fields}
        connection.outgoing_frames.put_nowait((monotonic() + self._faults.latency, frame))

    async def _send_frames(self, connection: GatewayConnection) -> None:
        """Send the queued frames of a connection in order, until cancelled."""
        while True:
            due, frame = await connection.outgoing_frames.get()
            await asyncio.sleep(max(0.0, due - monotonic()))
            if connection.is_frozen:
                continue
            text = json.dumps(frame)
            with suppress(ConnectionError):
                if connection.compressor is None:
                    await connection.ws.send_str(text)
                else:
                    await connection.ws.send_bytes(connection.compressor(text.encode()))

    # Incoming

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one WebSocket from its handshake to its end.

        If the client closes it with 1000 or 1001, its session ends; otherwise the session can be resumed. An
        unavailable compression closes it with 4012, after which clients do not reconnect; the reason in the close frame
        explains it. An injected refusal of the handshake is HTTP 503.
        """
        if self._faults.take_handshake_refusal():
            return web.Response(status=503)
        ws = web.WebSocketResponse(timeout=CLOSE_TIMEOUT_SECONDS)
        await ws.prepare(request)
        compression = request.query.get("compress")
        try:
            compressor = create_compressor(compression) if compression else None
        except ValueError as error:
            await ws.close(code=INVALID_VERSION, message=str(error).encode())
            return ws
        connection = GatewayConnection(ws, request, compressor)
        self._connections.append(connection)
        interval = int(HEARTBEAT_SECONDS * 1000 / self._speed)
        self._queue_frame(connection, HELLO, {"heartbeat_interval": interval, "_trace": ["simulator"]})
        writer = asyncio.create_task(self._send_frames(connection))
        try:
            async for frame in ws:
                if frame.type in (WSMsgType.TEXT, WSMsgType.BINARY) and not connection.is_frozen:
                    try:
                        self._receive_frame(connection, frame.data)
                    except GatewayCloseError as hangup:
                        await self._close(connection, hangup.code)
                    self._activity_log.notify()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            if connection.session is not None and not connection.is_closed_by_simulator:
                connection.session.close_code = ws.close_code
                if ws.close_code in (1000, 1001):
                    self._resumable.pop(connection.session.id, None)
            self._detach(connection)
        return ws

    def _receive_frame(self, connection: GatewayConnection, data: str | bytes) -> None:
        """Check and run one frame of a client.

        Raises:
            GatewayCloseError: the frame breaks the gateway's protocol.
        """
        now = monotonic()
        connection.frame_times.append(now)
        while connection.frame_times[0] <= now - FRAME_WINDOW_SECONDS / self._speed:
            connection.frame_times.popleft()
        if len(connection.frame_times) > MAX_FRAMES:
            raise GatewayCloseError(TOO_FAST)
        try:
            frame = json.loads(data)
            op, about = frame["op"], frame.get("d")
        except (ValueError, KeyError, TypeError):
            raise GatewayCloseError(DECODE_ERROR) from None
        if len(data) > MAX_FRAME_BYTES:
            raise GatewayCloseError(DECODE_ERROR)
        self._handle_opcode(connection, op, about)

    def _handle_opcode(self, connection: GatewayConnection, op: Any, data: Any) -> None:
        """Run a client's opcode with its data; voice state updates (4) have no effect.

        Raises:
            GatewayCloseError: the frame breaks the gateway's protocol.
        """
        match op, data:
            case 1, _:
                self._heartbeat(connection)
            case ((2 | 6), _) if connection.session is not None:
                raise GatewayCloseError(ALREADY_AUTHENTICATED)
            case 2, {"token": str(), "intents": int()}:
                self._identify(connection, data)
            case 6, {"token": str(), "session_id": str(), "seq": int()}:
                self._resume(connection, data)
            case ((2 | 6), _):
                raise GatewayCloseError(DECODE_ERROR)
            case ((3 | 4 | 8), _) if connection.session is None:
                raise GatewayCloseError(NOT_AUTHENTICATED)
            case 8, {"guild_id": _}:
                self._send_members(connection.session, data)
            case 3, {"status": str()} if connection.session is not None:
                connection.session.status = data["status"]
            case 4, _:
                pass
            case 3, _:
                raise GatewayCloseError(DECODE_ERROR)
            case _:
                raise GatewayCloseError(UNKNOWN_OPCODE)

    def _heartbeat(self, connection: GatewayConnection) -> None:
        if connection.session is not None:
            connection.session.heartbeat_count += 1
        self._queue_frame(connection, ACK)

    def _identify(self, connection: GatewayConnection, data: Json) -> None:
        if data["token"] != self._token:
            raise GatewayCloseError(BAD_TOKEN)
        intents = data["intents"]
        if intents & ~ALL_INTENTS:
            raise GatewayCloseError(INVALID_INTENTS)
        if intents & combine_bits(PRIVILEGED_INTENTS.keys() - self._privileged_intents, PRIVILEGED_INTENTS):
            raise GatewayCloseError(DISALLOWED_INTENTS)
        shard, shard_count = data.get("shard") or (0, 1)
        if not 0 <= shard < shard_count:
            raise GatewayCloseError(INVALID_SHARD)
        session = GatewaySession(secrets.token_hex(16), intents, (shard, shard_count), data.get("properties", {}))
        session.status = (data.get("presence") or {}).get("status") or "online"
        self.sessions.append(session)
        self._resumable[session.id] = session
        connection.session = session
        bot, guild_ids = self._payloads.bot_user(), [guild["id"] for guild in self._payloads.bot_guilds()]
        guild_ids = [guild_id for guild_id in guild_ids if (int(guild_id) >> 22) % shard_count == shard]
        ready = {
            "v": 10,
            "user": bot,
            "guilds": [{"id": guild_id, "unavailable": True} for guild_id in guild_ids],
            "session_id": session.id,
            "resume_gateway_url": self.url,
            "shard": [shard, shard_count],
            "application": {"id": bot["id"], "flags": combine_bits(self._privileged_intents, APPLICATION_FLAGS)},
            "private_channels": [],
        }
        self._send_event(session, "READY", ready)
        if guild_ids and intents & GUILDS:
            self._send_guild(session)

    def _send_guild(self, session: GatewaySession) -> None:
        """Send `GUILD_CREATE` with the server to a session.

        During an outage of the server it is `GUILD_DELETE`.
        """
        guild = self._payloads.guild_create(all_members=bool(session.intents & GUILD_PRESENCES))
        if self.is_guild_available:
            self._send_event(session, "GUILD_CREATE", guild)
        else:
            self._send_event(session, "GUILD_DELETE", {"id": guild["id"], "unavailable": True})

    def set_guild_available(self, available: bool) -> None:
        """Begin or end an outage of the server.

        At the beginning, each session with the intent for servers receives `GUILD_DELETE`, at the end `GUILD_CREATE`.
        The server's events in between are lost. Nothing happens if the state is the same, and nothing is sent to a
        removed bot.

        Args:
            available: False begins an outage, True ends it.
        """
        if self.is_guild_available == available:
            return
        self.is_guild_available = available
        for guild in self._payloads.bot_guilds():
            for session in self._list_receivers(GUILDS, guild["id"]):
                self._send_guild(session)

    def _resume(self, connection: GatewayConnection, data: Json) -> None:
        if data["token"] != self._token:
            raise GatewayCloseError(BAD_TOKEN)
        session = self._resumable.get(data["session_id"])
        if session is None or session.is_expired or self._faults.take_resume_refusal():
            self._resumable.pop(data["session_id"], None)
            self._queue_frame(connection, INVALID_SESSION, False)
            return
        if data["seq"] > len(session.events):
            raise GatewayCloseError(BAD_SEQUENCE)
        for other in list(self._connections):
            if other.session is session:
                self._detach(other)
        connection.session = session
        session.disconnected_at = None
        session.resume_count += 1
        for event in session.events[data["seq"] :]:
            self._queue_event(connection, event)
        self._send_event(session, "RESUMED", {})

    def _send_members(self, session: GatewaySession | None, data: Json) -> None:
        if session is not None and session.intents & GUILD_MEMBERS:
            guild = self._payloads.guild_create(all_members=True)
            chunk = {"guild_id": guild["id"], "members": guild["members"], "chunk_index": 0, "chunk_count": 1}
            self._send_event(session, "GUILD_MEMBERS_CHUNK", chunk | {"not_found": [], "nonce": data.get("nonce")})

    def _detach(self, connection: GatewayConnection) -> None:
        """Remove a closed connection; its session counts as disconnected from now on."""
        if connection in self._connections:
            self._connections.remove(connection)
            if connection.session is not None:
                connection.session.disconnected_at = monotonic()
            self._activity_log.notify()

    # Connection faults

    def drop_connections(self) -> None:
        """Abort every gateway connection without a close frame; sessions can be resumed."""
        for connection in list(self._connections):
            connection.is_closed_by_simulator = True
            if connection.request.transport is not None:
                connection.request.transport.abort()
            self._detach(connection)

    def freeze_connections(self, session: GatewaySession | None = None) -> None:
        """Stop sending and reading on every connection, or on that of one session.

        The connections stay open, but heartbeats are not acknowledged. The sessions count as disconnected, and can be
        resumed.

        Args:
            session: the session; None for all.
        """
        for connection in self._connections:
            if session not in (None, connection.session):
                continue
            connection.is_closed_by_simulator = connection.is_frozen = True
            if connection.session is not None:
                connection.session.disconnected_at = monotonic()

    def request_reconnect(self) -> None:
        """Request every client to reconnect (op 7), and return.

        A connection that is still open after `RECONNECT_CLOSE_SECONDS`, divided by `speed`, is closed with 4000.
        """
        for connection in self._connections:
            self._queue_frame(connection, RECONNECT)
            self._start_task(self._close_later(connection))

    def invalidate_sessions(self, *, resumable: bool) -> None:
        """Send an invalid session (op 9) on every connection, also before IDENTIFY.

        Connections stay open without a session: clients may resume or identify on the same one (Discord:
        discord-api-docs #1805).

        Args:
            resumable: whether the sessions can be resumed; otherwise they end, and events that they missed are lost.
        """
        for connection in self._connections:
            self._queue_frame(connection, INVALID_SESSION, resumable)
            if connection.session is not None:
                if not resumable:
                    self._resumable.pop(connection.session.id, None)
                connection.session.disconnected_at = monotonic()
                connection.session = None

    async def _close_later(self, connection: GatewayConnection) -> None:
        await asyncio.sleep(RECONNECT_CLOSE_SECONDS / self._speed)
        await self._close(connection, 4000)

    async def _close(self, connection: GatewayConnection, code: int) -> None:
        connection.is_closed_by_simulator = True
        await connection.ws.close(code=code)

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
