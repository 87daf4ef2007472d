"""Socket Mode: tickets, sockets, and the delivery of envelopes until they are acknowledged.

Slack: docs.slack.dev/apis/events-api/using-socket-mode. An event that is not acknowledged within 3 seconds is
sent again: at once, after a minute and after five. What comes while no socket is open has missed its first
delivery, and arrives as a retry. A slash command or a press is sent once, or not at all.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal
from uuid import uuid4

from aiohttp import WSMsgType, web

from sandbox.slack.api.faults import SlackFaults
from sandbox.slack.state.activity_log import EnvelopeRecord, SlackActivityLog

ACK_TIMEOUT = 3.0
RETRY_AFTER = (0.0, 60.0, 300.0)
MOST_SOCKETS = 10
#: Real seconds at any speed: a handshake takes the time that it takes.
TICKET_LIFE = 30.0
#: From the notice that a socket is going to be closed until it is.
CLOSE_AFTER = 10.0
#: What Slack announces in `hello`, in seconds.
CONNECTION_TIME = 18_060
HEARTBEAT = 10.0
#: How long a client that does not answer may hold up the closing of its socket.
CLOSE_TIMEOUT = 1.0

EnvelopeType = Literal["events_api", "slash_commands", "interactive"]


@dataclass(eq=False, slots=True)
class EnvelopeDelivery:
    """An envelope on its way: all its sendings, until one of them is acknowledged."""

    type: EnvelopeType
    payload: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid4()))
    attempt: int = 0
    reason: str = ""
    sent: list[EnvelopeRecord] = field(default_factory=list)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def response(self) -> dict[str, Any] | None:
        return next((e.response for e in self.sent if e.acknowledged_at is not None), None)


@dataclass(eq=False, slots=True)
class SocketConnection:
    """`retiring`: the client was told to leave; it gets no more envelopes. `frozen`: nothing comes through any more,
    which nobody has noticed.
    """

    ws: web.WebSocketResponse
    request: web.Request
    outstanding: dict[str, EnvelopeDelivery] = field(default_factory=dict)
    retiring: bool = False
    frozen: bool = False


class SocketModeServer:
    def __init__(self, journal: SlackActivityLog, faults: SlackFaults, *, app_id: str, speed: float) -> None:
        self._journal = journal
        self._faults = faults
        self._app_id = app_id
        self._speed = speed
        self._tickets: dict[str, float] = {}
        self._sockets: list[SocketConnection] = []
        self._waiting: deque[EnvelopeDelivery] = deque()
        self._deliveries: dict[str, EnvelopeDelivery] = {}
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        self._own(self._dispatch())

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for socket in list(self._sockets):
            await socket.ws.close()

    @property
    def connected(self) -> int:
        return sum(not (socket.retiring or socket.frozen) for socket in self._sockets)

    def ticket(self) -> str:
        """A ticket for one handshake, good for half a minute."""
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = monotonic() + TICKET_LIFE
        return ticket

    # The way out

    def deliver(self, type_: EnvelopeType, payload: dict[str, Any]) -> EnvelopeDelivery:
        """Send an envelope to one live socket, as soon as there is one."""
        delivery = EnvelopeDelivery(type_, payload)
        self._deliveries[delivery.id] = delivery
        self._later(self._faults.latency, delivery)
        return delivery

    def redeliver(self, envelope: EnvelopeRecord, reason: str = "timeout") -> None:
        """Send it again, acknowledged or not."""
        delivery = self._deliveries[envelope.id]
        self._again(delivery, reason, after=0)

    def _again(self, delivery: EnvelopeDelivery, reason: str, *, after: float) -> None:
        delivery.attempt += 1
        delivery.reason = reason
        self._later(after, delivery)

    def _later(self, seconds: float, delivery: EnvelopeDelivery) -> None:
        if seconds:
            self._set_timer(delivery, seconds, lambda: self._enqueue(delivery))
        else:
            self._enqueue(delivery)

    def _enqueue(self, delivery: EnvelopeDelivery) -> None:
        self._waiting.append(delivery)
        self._wake.set()

    async def _dispatch(self) -> None:
        """Hand out what waits, one after the other and in order, for as long as there is a socket."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and (live := [s for s in self._sockets if not s.retiring]):
                await self._send(secrets.choice(live), self._waiting.popleft())
            for delivery in self._waiting:
                if not delivery.attempt:
                    delivery.attempt, delivery.reason = 1, "timeout"

    async def _send(self, socket: SocketConnection, delivery: EnvelopeDelivery) -> None:
        envelope = EnvelopeRecord(
            delivery.id, delivery.type, delivery.payload, monotonic(), delivery.attempt, delivery.reason
        )
        frame: dict[str, Any] = {
            "envelope_id": delivery.id,
            "type": delivery.type,
            "payload": delivery.payload,
            "accepts_response_payload": delivery.type != "events_api",
        }
        if delivery.type == "events_api":
            frame |= {"retry_attempt": delivery.attempt, "retry_reason": delivery.reason}
        delivery.sent.append(envelope)
        socket.outstanding[delivery.id] = delivery
        self._journal.envelopes.append(envelope)
        self._journal.tick()
        if delivery.type == "events_api":
            self._watch(socket, delivery)
        if socket.frozen:
            return
        try:
            await socket.ws.send_json(frame)
        except ConnectionError:
            self._forget(socket)

    def _watch(self, socket: SocketConnection, delivery: EnvelopeDelivery) -> None:
        def overdue() -> None:
            socket.outstanding.pop(delivery.id, None)
            if not delivery.acknowledged.is_set() and delivery.attempt < len(RETRY_AFTER):
                self._again(delivery, "timeout", after=RETRY_AFTER[delivery.attempt] / self._speed)

        self._set_timer(delivery, ACK_TIMEOUT / self._speed, overdue)

    def _set_timer(self, delivery: EnvelopeDelivery, seconds: float, action: Callable[[], None]) -> None:
        """Let `action` come, unless something else comes of the delivery before."""
        self._stop_timer(delivery)

        def due() -> None:
            del self._timers[delivery.id]
            action()

        self._timers[delivery.id] = asyncio.get_running_loop().call_later(seconds, due)

    def _stop_timer(self, delivery: EnvelopeDelivery) -> None:
        if timer := self._timers.pop(delivery.id, None):
            timer.cancel()

    # The way in

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One WebSocket, from its handshake to its end."""
        expiry = self._tickets.pop(request.query.get("ticket", ""), 0.0)
        if expiry < monotonic():
            return web.Response(status=408, text="this ticket was used before, has expired or never was")
        if self._faults.take_handshake():
            return web.Response(status=500)
        ws = web.WebSocketResponse(heartbeat=HEARTBEAT, timeout=CLOSE_TIMEOUT)
        await ws.prepare(request)
        self._cut([socket for socket in self._sockets if socket.frozen])
        if len(self._sockets) >= MOST_SOCKETS:
            await ws.send_json({"type": "disconnect", "reason": "too_many_websockets", "debug_info": {}})
            await ws.close()
            return ws
        await ws.send_json(
            {
                "type": "hello",
                "num_connections": len(self._sockets) + 1,
                "connection_info": {"app_id": self._app_id},
                "debug_info": {
                    "host": "sandbox",
                    "build_number": 1,
                    "approximate_connection_time": CONNECTION_TIME,
                },
            }
        )
        socket = SocketConnection(ws, request)
        self._sockets.append(socket)
        self._journal.tick()
        self._wake.set()
        try:
            with suppress(ConnectionError):
                async for frame in ws:
                    if frame.type is WSMsgType.TEXT:
                        self._acknowledge(frame.data)
        finally:
            self._forget(socket)
        return ws

    def _acknowledge(self, data: str) -> None:
        """Take an acknowledgement; anything else that a client might say is ignored, as Slack does."""
        try:
            frame = json.loads(data)
        except ValueError:
            return
        delivery = self._deliveries.get(frame.get("envelope_id", "")) if isinstance(frame, dict) else None
        if delivery is None:
            return
        for socket in self._sockets:
            socket.outstanding.pop(delivery.id, None)
        self._stop_timer(delivery)
        pending = [envelope for envelope in delivery.sent if envelope.acknowledged_at is None]
        if pending:
            pending[0].acknowledged_at = monotonic()
            pending[0].response = frame.get("payload")
        delivery.acknowledged.set()
        self._journal.tick()

    def _forget(self, socket: SocketConnection) -> None:
        """A socket has died: what it had not acknowledged goes to the next one, before all that waits."""
        if socket not in self._sockets:
            return
        self._sockets.remove(socket)
        for delivery in reversed(socket.outstanding.values()):
            self._stop_timer(delivery)
            if delivery.type == "events_api" and delivery.attempt < len(RETRY_AFTER):
                delivery.attempt += 1
                delivery.reason = "timeout"
                self._waiting.appendleft(delivery)
        socket.outstanding.clear()
        self._wake.set()
        self._journal.tick()

    # What may happen to sockets

    def drop(self) -> None:
        """Cut every connection, without a word."""
        self._cut(list(self._sockets))

    def _cut(self, sockets: Iterable[SocketConnection]) -> None:
        for socket in sockets:
            if socket.request.transport is not None:
                socket.request.transport.abort()
            self._forget(socket)

    def freeze(self) -> None:
        """Let every connection go dead: open, but nothing is heard on it any more, and nothing said. That is noticed
        here when the next one is made.
        """
        for socket in self._sockets:
            socket.frozen = True
            if socket.request.transport is not None:
                socket.request.transport.pause_reading()
        self._journal.tick()

    def give_up(self) -> None:
        """Deliver nothing of what has not been acknowledged yet: it has been tried often enough."""
        for socket in self._sockets:
            socket.outstanding.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()

    async def refresh(self, reason: str) -> None:
        """Tell every client to connect anew, and close its socket a little later."""
        for socket in list(self._sockets):
            socket.retiring = True
            notice = {"type": "disconnect", "reason": reason, "debug_info": {"host": "sandbox"}}
            await socket.ws.send_json(notice)
            self._own(self._close_later(socket))
        self._journal.tick()

    async def _close_later(self, socket: SocketConnection) -> None:
        await asyncio.sleep(CLOSE_AFTER / self._speed)
        await socket.ws.close()

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
