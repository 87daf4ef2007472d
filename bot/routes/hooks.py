"""HTTP routes of hooks: `POST /hooks/NAME` stores a signed request, which begins a turn.

Nothing of a request is parsed before its signature is verified, and neither payload nor signature is logged.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil

from aiohttp import web

from bot.monitoring.health import HealthMonitor
from bot.server import RESPONSE_TIMEOUT_SECONDS, RETRY_AFTER_SECONDS, read_body, refuse_request
from core.errors import StoreError
from core.messages.inbox_message import AcceptResult
from core.observability.secret_redaction import format_error
from core.turns.automation.hooks import (
    MAX_DELIVERY_ID_LENGTH,
    Hook,
    HookStore,
    PayloadFault,
    get_event_key,
    make_message,
    read_payload,
)
from core.turns.automation.signatures import verify_request
from core.turns.claims import derive_turn_id
from core.usage.user_rate_limits import RateLimitDenial

log = logging.getLogger(__name__)

#: The path of all hooks, before their names.
HOOKS_PATH = "/hooks/"

#: Payloads that this process reads at the same time, each in a process of its own.
MAX_READERS = 2


class HookRoutes:
    """Routes of hooks, by name, at `HOOKS_PATH`."""

    def __init__(self, hooks: Mapping[str, Hook], store: HookStore, health: HealthMonitor) -> None:
        self._hooks = hooks
        self._store = store
        self._health = health
        self._slots = asyncio.Semaphore(MAX_READERS)

    @property
    def routes(self) -> Sequence[web.AbstractRouteDef]:
        return [web.post(HOOKS_PATH + name, partial(self._receive, name, hook)) for name, hook in self._hooks.items()]

    async def _receive(self, name: str, hook: Hook, request: web.Request) -> web.Response:
        """Verify and store a request, and respond with 202 and the id of its turn, or with the reason."""
        if self._health.is_stopping:
            return refuse_request(503, "The bot is stopping.", RETRY_AFTER_SECONDS)
        body = await read_body(request, hook.max_bytes)
        if body is None:
            return refuse_request(413, f"The body has more than {hook.max_bytes:,} bytes.")
        secret = hook.secret.get_secret_value()
        signed_at = verify_request(hook.signature, secret, request.headers, body, now=time.time())
        if signed_at is None:
            log.warning("a request to the hook %s is not signed, or long ago: is its secret right?", name)
            return refuse_request(401, "The signature or token is missing, wrong or too old.")
        is_json = request.content_type == "application/json" or request.content_type.endswith("+json")
        if not is_json or "Content-Encoding" in request.headers:
            return refuse_request(415, "Send JSON without compression, as Content-Type: application/json.")
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
                return await self._store_delivery(name, hook, request.headers, body, signed_at)
        except StoreError as error:
            log.warning("a request to the hook %s cannot be stored: %s", name, format_error(error))
        except TimeoutError:
            log.warning("a request to the hook %s cannot be stored within %g s", name, RESPONSE_TIMEOUT_SECONDS)
        return refuse_request(503, "The request cannot be stored now: send it again.", RETRY_AFTER_SECONDS)

    async def _store_delivery(
        self, name: str, hook: Hook, headers: Mapping[str, str], body: bytes, signed_at: str
    ) -> web.Response:
        """Store a verified request, unless it was stored before or exceeds the hook's limit.

        Both are checked before the payload is read, and again once it is its turn: a flood must not start processes.
        """
        event_key = get_event_key(name, headers.get(hook.delivery_header, ""), signed_at, body)
        known_key = "" if hook.delivery_field else event_key
        if known_key and (response := await self._check(name, hook, known_key)) is not None:
            return response
        async with self._slots:
            if known_key and (response := await self._check(name, hook, known_key)) is not None:
                return response
            delivery = await read_payload(name, hook, body)
            if isinstance(delivery, PayloadFault):
                log.warning("the payload of a request to the hook %s cannot be used: %s", name, delivery.reason)
                return refuse_request(400 if delivery.is_malformed else 422, delivery.reason)
            if delivery.id:
                event_key = get_event_key(name, delivery.id, signed_at, body)
            if event_key is None:
                return refuse_request(
                    400, f"The delivery id must have at most {MAX_DELIVERY_ID_LENGTH} characters of ASCII."
                )
            message = make_message(name, hook, delivery, event_key=event_key, at=time.time())
            return _respond(name, event_key, await self._store.append(name, hook, message))

    async def _check(self, name: str, hook: Hook, event_key: str) -> web.Response | None:
        """Return the response to a request that is stored already, or exceeds the hook's limit; None to store it."""
        checked = await self._store.check(name, hook, event_key)
        return None if checked is AcceptResult.NEXT else _respond(name, event_key, checked)


def _respond(name: str, event_key: str, result: AcceptResult | RateLimitDenial) -> web.Response:
    if isinstance(result, RateLimitDenial):
        return refuse_request(429, f"The hook {name} gets too many requests.", max(1, ceil(result.until - time.time())))
    turn_id = derive_turn_id(event_key)
    log.info("hook %s: turn %s%s", name, turn_id, " (sent again)" if result is AcceptResult.DUPLICATE else "")
    return web.json_response({"turn": turn_id}, status=202)
