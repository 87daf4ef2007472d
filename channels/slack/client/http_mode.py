"""HTTP mode: the endpoint for Slack's signed requests (events, interactions).

Slack: docs.slack.dev/apis/events-api/using-http-request-urls and
docs.slack.dev/authentication/verifying-requests-from-slack.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.signature import SignatureVerifier

from channels.base import ARRIVED_AT
from core.concurrency.tasks import BackgroundTasks
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

EVENTS_PATH = "/slack/events"

#: Seconds after which a request gets a response, even if it is still being processed. Slack waits for 3.
RESPONSE_TIMEOUT_SECONDS = 2.5

#: Seconds that requests may still take after `close`.
CLOSE_SECONDS = 2.0


class HttpMode:
    """Passes requests with Slack's signature to a Bolt app; others get HTTP 401."""

    def __init__(self, app: AsyncApp, signing_secret: str) -> None:
        self._app = app
        self._verifier = SignatureVerifier(signing_secret)
        self._is_open = False
        self._closed_at = 0.0  # seconds since the epoch
        self._work = BackgroundTasks()

    @property
    def routes(self) -> Sequence[web.AbstractRouteDef]:
        return [web.post(EVENTS_PATH, self._receive)]

    @property
    def last_event_at(self) -> float:
        """The time until which requests were accepted: now while it is open, 0 before `open`."""
        return time.time() if self._is_open else self._closed_at

    async def open(self) -> None:
        """Start to accept requests; before that, a signed request gets HTTP 503."""
        self._is_open = True

    async def reopen(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Respond to new requests with HTTP 503, so that Slack sends them again.

        Requests that are being processed are awaited for `CLOSE_SECONDS`, then cancelled.
        """
        self._is_open = False
        self._closed_at = time.time()
        await self._work.drain(CLOSE_SECONDS)

    async def _receive(self, request: web.Request) -> web.Response:
        """Pass a request with a valid signature to Bolt, and respond in `RESPONSE_TIMEOUT_SECONDS`.

        If processing takes longer, the response is HTTP 503 and the processing continues. Slack then sends the request
        again (`x-slack-retry-num`); its message is stored only once, by its event key.
        """
        now = asyncio.get_running_loop().time
        deadline = request.get(ARRIVED_AT, now()) + RESPONSE_TIMEOUT_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408)
        if not self._is_signed(body, request):
            log.warning("a request was not signed by Slack, or long ago: is SLACK_SIGNING_SECRET right?")
            return web.Response(status=401)
        if not self._is_open:
            return web.Response(status=503)
        if retry := request.headers.get("x-slack-retry-num"):
            log.info("Slack delivers a request again (attempt %s)", retry)
        task = asyncio.create_task(self._dispatch(request), name="slack request")
        self._work.add(task)
        await asyncio.wait([task], timeout=max(0.0, deadline - now()))
        if not task.done() or task.cancelled():
            return web.Response(status=503)
        return await to_aiohttp_response(task.result())

    async def _dispatch(self, request: web.Request) -> BoltResponse:
        try:
            return await self._app.async_dispatch(await to_bolt_request(request))
        except Exception as error:
            log.error("a request could not be processed: %s", format_error(error))
            return BoltResponse(status=500)

    def _is_signed(self, body: bytes, request: web.Request) -> bool:
        """Return whether a request has a signature of Slack, at most five minutes old."""
        try:
            return self._verifier.is_valid_request(body, dict(request.headers))
        except (ValueError, TypeError):  # a timestamp that is no number, a body that is no text, a non-ASCII signature
            return False
