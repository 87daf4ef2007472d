"""HTTP route of tickets: `POST /tickets/ID` finishes a background job with its key.

Nothing of a request is parsed before its key is verified, and neither key nor result is logged.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from math import ceil

from aiohttp import web

from bot.monitoring.health import HealthMonitor
from bot.server import (
    MAX_REQUEST_BYTES,
    RESPONSE_TIMEOUT_SECONDS,
    RETRY_AFTER_SECONDS,
    read_body,
    refuse_request,
)
from core.concurrency import event_loop
from core.errors import StoreError
from core.observability.secret_redaction import format_error
from core.turns.automation.jobs import FinishResult, JobResult, JobStore, get_event_key
from core.turns.automation.tickets import TICKETS_PATH
from core.turns.claims import derive_turn_id

log = logging.getLogger(__name__)

#: The most refused keys and unknown tickets in a period, in seconds, that get 401 and 404; more get 429.
MAX_FAILURES, PERIOD_SECONDS = 60, 60.0

_REFUSALS = {
    FinishResult.UNKNOWN: (404, "There is no such ticket."),
    FinishResult.WRONG_KEY: (401, "The key is missing or wrong: send it as Authorization: Bearer KEY."),
    FinishResult.CANCELLED: (410, "Somebody cancelled this, or reset its conversation."),
}


class TicketRoutes:
    """Route of tickets, at `TICKETS_PATH`."""

    def __init__(self, store: JobStore, health: HealthMonitor) -> None:
        self._store = store
        self._health = health
        self._period_ends_at = 0.0
        self._failures = 0

    @property
    def routes(self) -> Sequence[web.AbstractRouteDef]:
        return [web.post(TICKETS_PATH + "{id:[0-9a-f]{10}}", self._receive)]

    async def _receive(self, request: web.Request) -> web.Response:
        """Finish a ticket, and respond with 202 and the id of the turn that answers it, or with the reason."""
        if self._health.is_stopping:
            return refuse_request(503, "The bot is stopping.", RETRY_AFTER_SECONDS)
        body = await read_body(request, MAX_REQUEST_BYTES)
        if body is None:
            return refuse_request(413, f"The body has more than {MAX_REQUEST_BYTES:,} bytes.")
        id_ = request.path.removeprefix(TICKETS_PATH)
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
                return await self._finish(request, id_, key.strip() if scheme.lower() == "bearer" else "", body)
        except StoreError as error:
            log.warning("the result of ticket %s cannot be stored: %s", id_, format_error(error))
        except TimeoutError:
            log.warning("the result of ticket %s cannot be stored within %g s", id_, RESPONSE_TIMEOUT_SECONDS)
        return refuse_request(503, "The result cannot be stored now: send it again.", RETRY_AFTER_SECONDS)

    async def _finish(self, request: web.Request, id_: str, key: str, body: bytes) -> web.Response:
        finished = await self._store.check_key(id_, key)
        if finished is None:
            if request.content_type != "application/json" or "Content-Encoding" in request.headers:
                return refuse_request(415, "Send JSON without compression, as Content-Type: application/json.")
            try:
                result = json.loads(body)
            except (ValueError, RecursionError):
                return refuse_request(400, "The body is not JSON in UTF-8.")
            finished = await self._store.finish(id_, JobResult.from_json(result), key=key)
        if finished is FinishResult.FINISHED:
            turn_id = derive_turn_id(get_event_key(id_))
            log.info("ticket %s: turn %s", id_, turn_id)
            return web.json_response({"turn": turn_id}, status=202)
        if finished is not FinishResult.CANCELLED and (seconds := self._count_failure()):
            return refuse_request(429, "Too many requests have a wrong key or an unknown ticket.", seconds)
        return refuse_request(*_REFUSALS[finished])

    def _count_failure(self) -> int:
        """Count a wrong key or an unknown ticket; return the seconds until the next may be sent, if there are many."""
        now = event_loop.now()
        if now >= self._period_ends_at:
            self._period_ends_at = now + PERIOD_SECONDS
            self._failures = 0
        self._failures += 1
        if self._failures == MAX_FAILURES:
            log.warning("%d requests had a wrong key or an unknown ticket", self._failures)
        return ceil(self._period_ends_at - now) if self._failures > MAX_FAILURES else 0
