"""Socket Mode server: tickets, WebSockets and delivery of envelopes.

Slack: docs.slack.dev/apis/events-api/using-socket-mode. Without an acknowledgement within 3 seconds, Slack retries an
event at once, after one minute and after five minutes. An event without an open socket has missed its first delivery
and arrives as a retry. Slash commands and interactions are sent at most once.
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

from chatrig.slack.api.faults import SlackFaults
from chatrig.slack.state.activity_log import EnvelopeRecord, SlackActivityLog

ACK_TIMEOUT_SECONDS = 3.0
RETRY_DELAYS_SECONDS = (0.0, 60.0, 300.0)
MAX_SOCKETS = 10
#: Real seconds at any speed: a handshake does not run faster.
TICKET_LIFETIME_SECONDS = 30.0
#: Seconds from the `disconnect` message to the close.
CLOSE_DELAY_SECONDS = 10.0
#: `approximate_connection_time` in `hello`.
CONNECTION_SECONDS = 18_060
HEARTBEAT_SECONDS = 10.0
#: Seconds that the server waits for a client's close frame.
CLOSE_TIMEOUT_SECONDS = 1.0

EnvelopeType = Literal["events_api", "slash_commands", "interactive"]


@dataclass(eq=False, slots=True)
class EnvelopeDelivery:
    """Envelope of an event, command or interaction, and its deliveries to the app.

    Attributes:
        attempt: the number of retries so far.
        reason: Socket Mode: Slack's reason for the last retry; "" without one. HTTP: the error of the last delivery; ""
            once it is acknowledged.
        sent: a record of each delivery.
        acknowledged: event that is set once the app has acknowledged the envelope.
    """

    type: EnvelopeType
    payload: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid4()))
    attempt: int = 0
    reason: str = ""
    sent: list[EnvelopeRecord] = field(default_factory=list)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def response(self) -> dict[str, Any] | None:
        """The JSON payload of the app's acknowledgement.

        None before an acknowledgement, and for one without a payload.
        """
        return next((e.response for e in self.sent if e.acknowledged_at is not None), None)


@dataclass(eq=False, slots=True)
class SocketConnection:
    """WebSocket connection of a Socket Mode client, until it is closed.

    Attributes:
        unacknowledged: deliveries on this socket by envelope id.
        is_retiring: whether `disconnect` was sent, so that no more envelopes follow.
        is_frozen: whether frames are held back, although the connection stays open.
    """

    ws: web.WebSocketResponse
    request: web.Request
    unacknowledged: dict[str, EnvelopeDelivery] = field(default_factory=dict)
    is_retiring: bool = False
    is_frozen: bool = False


class SocketModeServer:
    """Server of Socket Mode's WebSockets.

    Args:
        speed: divides the timeout of acknowledgements, the delays of retries and `CLOSE_DELAY_SECONDS`.
    """

    def __init__(self, activity_log: SlackActivityLog, faults: SlackFaults, *, app_id: str, speed: float) -> None:
        self._activity_log = activity_log
        self._faults = faults
        self._app_id = app_id
        self._speed = speed
        self._tickets: dict[str, float] = {}
        self._sockets: list[SocketConnection] = []
        self._queue: deque[EnvelopeDelivery] = deque()
        self._deliveries: dict[str, EnvelopeDelivery] = {}
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        self._create_task(self._send_queued())

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for socket in list(self._sockets):
            await socket.ws.close()

    @property
    def connection_count(self) -> int:
        """Number of WebSockets that are neither frozen nor about to be closed."""
        return sum(not (socket.is_retiring or socket.is_frozen) for socket in self._sockets)

    def create_ticket(self) -> str:
        """Return a ticket for one WebSocket handshake within `TICKET_LIFETIME_SECONDS`."""
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = monotonic() + TICKET_LIFETIME_SECONDS
        return ticket

    # Delivery

    def deliver(self, type_: EnvelopeType, payload: dict[str, Any]) -> EnvelopeDelivery:
        """Queue an envelope for a WebSocket, after the latency of `SlackFaults`.

        Without a WebSocket, it stays queued until one connects; an event is then sent as a retry. An event is retried
        until it is acknowledged, at most `len(RETRY_DELAYS_SECONDS)` times. Commands and interactions are sent once.

        Returns:
            The delivery, whose `acknowledged` is set once the app has acknowledged the envelope.
        """
        delivery = EnvelopeDelivery(type_, payload)
        self._deliveries[delivery.id] = delivery
        self._schedule(self._faults.latency, delivery)
        return delivery

    def redeliver(self, envelope: EnvelopeRecord, reason: str = "timeout") -> None:
        """Queue an envelope again as a retry, even if it is acknowledged.

        Args:
            reason: the field `retry_reason` of the envelope.
        """
        delivery = self._deliveries[envelope.id]
        self._retry(delivery, reason, after=0)

    def _retry(self, delivery: EnvelopeDelivery, reason: str, *, after: float) -> None:
        delivery.attempt += 1
        delivery.reason = reason
        self._schedule(after, delivery)

    def _schedule(self, seconds: float, delivery: EnvelopeDelivery) -> None:
        if seconds:
            self._set_timer(delivery, seconds, lambda: self._enqueue(delivery))
        else:
            self._enqueue(delivery)

    def _enqueue(self, delivery: EnvelopeDelivery) -> None:
        self._queue.append(delivery)
        self._wake.set()

    async def _send_queued(self) -> None:
        """Send queued envelopes in order, each to a random WebSocket, until cancelled.

        Without a WebSocket, envelopes stay queued, and the next delivery of each counts as a retry after a timeout.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and (live := [s for s in self._sockets if not s.is_retiring]):
                await self._send(secrets.choice(live), self._queue.popleft())
            for delivery in self._queue:
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
        socket.unacknowledged[delivery.id] = delivery
        self._activity_log.envelopes.append(envelope)
        self._activity_log.notify()
        if delivery.type == "events_api":
            self._start_ack_timer(socket, delivery)
        if socket.is_frozen:
            return
        try:
            await socket.ws.send_json(frame)
        except ConnectionError:
            self._remove_socket(socket)

    def _start_ack_timer(self, socket: SocketConnection, delivery: EnvelopeDelivery) -> None:
        def overdue() -> None:
            socket.unacknowledged.pop(delivery.id, None)
            if not delivery.acknowledged.is_set() and delivery.attempt < len(RETRY_DELAYS_SECONDS):
                self._retry(delivery, "timeout", after=RETRY_DELAYS_SECONDS[delivery.attempt] / self._speed)

        self._set_timer(delivery, ACK_TIMEOUT_SECONDS / self._speed, overdue)

    def _set_timer(self, delivery: EnvelopeDelivery, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` after some seconds, in place of the delivery's previous timer."""
        self._stop_timer(delivery)

        def due() -> None:
            del self._timers[delivery.id]
            action()

        self._timers[delivery.id] = asyncio.get_running_loop().call_later(seconds, due)

    def _stop_timer(self, delivery: EnvelopeDelivery) -> None:
        if timer := self._timers.pop(delivery.id, None):
            timer.cancel()

    # Connections and acknowledgements

    async def handle_websocket(self, request: web.Request) -> web.StreamResponse:
        """Accept a WebSocket with a valid ticket; read its acknowledgements until it ends.

        The response is HTTP 408 without a valid ticket, and 500 if a fault refuses the handshake. A WebSocket beyond
        `MAX_SOCKETS` receives `disconnect` and is closed. A new WebSocket aborts the frozen ones: see
        `SocketConnection.is_frozen`. A ticket is valid once.
        """
        expiry = self._tickets.pop(request.query.get("ticket", ""), 0.0)
        if expiry < monotonic():
            return web.Response(status=408, text="the ticket is used, expired or unknown")
        if self._faults.take_handshake_refusal():
            return web.Response(status=500)
        ws = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, timeout=CLOSE_TIMEOUT_SECONDS)
        await ws.prepare(request)
        self._abort_sockets([socket for socket in self._sockets if socket.is_frozen])
        if len(self._sockets) >= MAX_SOCKETS:
            await ws.send_json({"type": "disconnect", "reason": "too_many_websockets", "debug_info": {}})
            await ws.close()
            return ws
        await ws.send_json(
            {
                "type": "hello",
                "num_connections": len(self._sockets) + 1,
                "connection_info": {"app_id": self._app_id},
                "debug_info": {
                    "host": "simulator",
                    "build_number": 1,
                    "approximate_connection_time": CONNECTION_SECONDS,
                },
            }
        )
        socket = SocketConnection(ws, request)
        self._sockets.append(socket)
        self._activity_log.notify()
        self._wake.set()
        try:
            with suppress(ConnectionError):
                async for frame in ws:
                    if frame.type is WSMsgType.TEXT:
                        self._acknowledge(frame.data)
        finally:
            self._remove_socket(socket)
        return ws

    def _acknowledge(self, data: str) -> None:
        """Record the acknowledgement in a client's frame, and stop the envelope's retries.

        The oldest unacknowledged delivery of the envelope gets the time and the payload. Other frames are ignored, as
        by Slack.
        """
        try:
            frame = json.loads(data)
        except ValueError:
            return
        delivery = self._deliveries.get(frame.get("envelope_id", "")) if isinstance(frame, dict) else None
        if delivery is None:
            return
        for socket in self._sockets:
            socket.unacknowledged.pop(delivery.id, None)
        self._stop_timer(delivery)
        pending = [envelope for envelope in delivery.sent if envelope.acknowledged_at is None]
        if pending:
            pending[0].acknowledged_at = monotonic()
            pending[0].response = frame.get("payload")
        delivery.acknowledged.set()
        self._activity_log.notify()

    def _remove_socket(self, socket: SocketConnection) -> None:
        """Remove a closed WebSocket; queue its unacknowledged events first, as retries.

        Events after their last retry, and unacknowledged commands and interactions, are not sent again.
        """
        if socket not in self._sockets:
            return
        self._sockets.remove(socket)
        for delivery in reversed(socket.unacknowledged.values()):
            self._stop_timer(delivery)
            if delivery.type == "events_api" and delivery.attempt < len(RETRY_DELAYS_SECONDS):
                delivery.attempt += 1
                delivery.reason = "timeout"
                self._queue.appendleft(delivery)
        socket.unacknowledged.clear()
        self._wake.set()
        self._activity_log.notify()

    # Disruptions

    def drop_sockets(self) -> None:
        """Abort every WebSocket connection without a close frame.

        Unacknowledged events are queued as retries for the next WebSocket.
        """
        self._abort_sockets(list(self._sockets))

    def _abort_sockets(self, sockets: Iterable[SocketConnection]) -> None:
        for socket in sockets:
            if socket.request.transport is not None:
                socket.request.transport.abort()
            self._remove_socket(socket)

    def freeze_sockets(self) -> None:
        """Freeze every WebSocket: it stays open, but no frames pass.

        Envelopes for it are recorded as sent, but not sent; events are retried, as without an acknowledgement. The
        frozen connections are aborted when the next client connects.
        """
        for socket in self._sockets:
            socket.is_frozen = True
            if socket.request.transport is not None:
                socket.request.transport.pause_reading()
        self._activity_log.notify()

    def discard_pending(self) -> None:
        """Discard all queued and unacknowledged envelopes, as after the last retry."""
        for socket in self._sockets:
            socket.unacknowledged.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queue.clear()

    async def refresh_sockets(self, reason: str) -> None:
        """Send `disconnect` to every client, and close its WebSocket in the background.

        The WebSocket is closed after `CLOSE_DELAY_SECONDS` (divided by the speed), and receives no more envelopes until
        then.

        Args:
            reason: Slack's reason in the message, such as `refresh_requested`.
        """
        for socket in list(self._sockets):
            socket.is_retiring = True
            notice = {"type": "disconnect", "reason": reason, "debug_info": {"host": "simulator"}}
            await socket.ws.send_json(notice)
            self._create_task(self._close_later(socket))
        self._activity_log.notify()

    async def _close_later(self, socket: SocketConnection) -> None:
        await asyncio.sleep(CLOSE_DELAY_SECONDS / self._speed)
        await socket.ws.close()

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
