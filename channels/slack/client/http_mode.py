"""HTTP mode: what Slack tells comes as requests, which say by their signature that they are Slack's.

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
from core.concurrency.tasks import Work
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Where Slack's requests come: events, commands and whatever is pressed.
PATH = "/slack/events"

#: Seconds after which a request is answered, whatever is still being done for it. Slack: it waits for 3.
ANSWER_SECONDS = 2.5

#: Seconds that requests may still take when no more are taken.
CLOSE_SECONDS = 2.0


class Requests:
    """Receives Slack's requests for `app`."""

    def __init__(self, app: AsyncApp, signing_secret: str) -> None:
        self._app = app
        self._verifier = SignatureVerifier(signing_secret)
        self._opened = asyncio.Event()
        self._closed_at = 0.0  # seconds since the epoch
        self._work = Work()

    @property
    def routes(self) -> Sequence[web.AbstractRouteDef]:
        return [web.post(PATH, self._take)]

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch: while open, now, as there is no connection to
        lose.
        """
        return (self._closed_at or time.time()) if self._opened.is_set() else 0.0

    async def open(self) -> None:
        """Take requests from now on, held ones first."""
        self._opened.set()

    async def reopen(self) -> None:
        """Nothing that could be connected anew."""

    async def close(self) -> None:
        """Take no more requests: Slack takes them elsewhere, or brings them again. Those under way are waited for, and
        then broken off: what was not taken in time was not acknowledged.
        """
        self._closed_at = time.time()
        self._opened.set()  # held requests are refused
        await self._work.end(CLOSE_SECONDS)

    async def _take(self, request: web.Request) -> web.Response:
        """Answer a request within `ANSWER_SECONDS`; one that comes before `open` is held for as long.

        A dispatch that takes longer goes on, and Slack sends the request again (`x-slack-retry-num`): the message is
        stored once, by its place and time.
        """
        now = asyncio.get_running_loop().time
        deadline = request.get(ARRIVED_AT, now()) + ANSWER_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408)
        if not self._is_signed(body, request):
            log.warning("a request was not signed by Slack, or long ago: is SLACK_SIGNING_SECRET right?")
            return web.Response(status=401)
        if not await self._is_opened(deadline) or self._closed_at:
            return web.Response(status=503)
        if retry := request.headers.get("x-slack-retry-num"):
            log.info("Slack brings a request again, for the %s. time", retry)
        task = asyncio.create_task(self._dispatch(request), name="slack request")
        self._work.watch(task)
        await asyncio.wait([task], timeout=max(0.0, deadline - now()))
        if not task.done() or task.cancelled():
            return web.Response(status=503)
        return await to_aiohttp_response(task.result())

    async def _is_opened(self, deadline: float) -> bool:
        """Wait for `open`; whether it came in time."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._opened.wait()
        except TimeoutError:
            return False
        return True

    async def _dispatch(self, request: web.Request) -> BoltResponse:
        try:
            return await self._app.async_dispatch(await to_bolt_request(request))
        except Exception as error:
            log.error("a request could not be taken: %s", traced(error))
            return BoltResponse(status=500)

    def _is_signed(self, body: bytes, request: web.Request) -> bool:
        """Whether Slack has sent it, within the last five minutes."""
        try:
            return self._verifier.is_valid_request(body, dict(request.headers))
        except (ValueError, TypeError):  # a time that is no number, a body that is no text, a signature not of ASCII
            return False
