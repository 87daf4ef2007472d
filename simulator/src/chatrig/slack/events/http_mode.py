"""HTTP mode: delivery of events and interactions to the app's request URL.

Slack: docs.slack.dev/apis/events-api/using-http-request-urls and
docs.slack.dev/authentication/verifying-requests-from-slack. Without a 2xx within 3 seconds, Slack retries an event at
once, after one minute and after five minutes. It sends slash commands and interactions once.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import aiohttp

from chatrig.slack.api.faults import SlackFaults
from chatrig.slack.events.socket_mode import (
    ACK_TIMEOUT_SECONDS,
    RETRY_DELAYS_SECONDS,
    EnvelopeDelivery,
    EnvelopeType,
    SocketModeServer,
)
from chatrig.slack.state.activity_log import EnvelopeRecord, SlackActivityLog


class RequestUrlClient:
    """HTTP client that posts signed envelopes to the app's request URL, concurrently.

    An envelope is an event, a slash command or an interaction with its delivery id. Only events are retried, until the
    app acknowledges them or forbids retries (`X-Slack-No-Retry`).

    Args:
        token: the verification token in the URL's check.
        speed: divides the timeouts and the delays of retries.

    Attributes:
        url: the verified request URL; "" before `verify`.
    """

    def __init__(
        self, activity_log: SlackActivityLog, faults: SlackFaults, *, signing_secret: str, token: str, speed: float
    ) -> None:
        self.url = ""
        self._activity_log = activity_log
        self._faults = faults
        self._signing_secret = signing_secret
        self._token = token
        self._speed = speed
        self._session: aiohttp.ClientSession | None = None
        self._deliveries: dict[str, EnvelopeDelivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._session = aiohttp.ClientSession()

    async def stop(self) -> None:
        self.discard_pending()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def verify(self, url: str) -> None:
        """Send Slack's challenge to a URL; set `url` to it if it answers correctly.

        Raises:
            ValueError: the URL did not answer with the challenge.
            aiohttp.ClientError, OSError: the request failed.
        """
        challenge = hashlib.sha256(url.encode()).hexdigest()
        body = json.dumps({"token": self._token, "challenge": challenge, "type": "url_verification"})
        status, _, response_text = await self._post(url, body, "application/json", {})
        with suppress(ValueError):
            response_text = json.loads(response_text)["challenge"]
        if status != 200 or response_text != challenge:
            raise ValueError(f"the request URL did not answer with the value of challenge (HTTP {status})")
        self.url = url

    def deliver(self, type_: EnvelopeType, payload: dict[str, Any]) -> EnvelopeDelivery:
        """Start to post an envelope to the request URL.

        The latency of `SlackFaults` applies. An event is retried until the app acknowledges it or forbids retries, at
        most `len(RETRY_DELAYS_SECONDS)` times. Commands and interactions are sent once.

        Args:
            type_: type of the envelope, as in Socket Mode.

        Returns:
            The delivery, whose `acknowledged` is set once the app has responded with HTTP 2xx.
        """
        delivery = EnvelopeDelivery(type_, payload)
        self._deliveries[delivery.id] = delivery
        self._schedule(delivery, self._faults.latency)
        return delivery

    def redeliver(self, envelope: EnvelopeRecord, reason: str = "http_timeout") -> None:
        """Start to post an envelope again as a retry, even if it is acknowledged.

        Args:
            reason: the value of the header `X-Slack-Retry-Reason`.
        """
        delivery = self._deliveries[envelope.id]
        delivery.attempt += 1
        delivery.reason = reason
        self._schedule(delivery, 0)

    def discard_pending(self) -> None:
        """Cancel the deliveries and retries of all unacknowledged envelopes."""
        for task in self._tasks:
            task.cancel()

    def sign(self, body: str, *, at: float | None = None) -> dict[str, str]:
        """Return the headers with the timestamp and the signature of a request body.

        Args:
            at: the timestamp in seconds since the epoch; None for now.
        """
        stamp = str(int(time.time() if at is None else at))
        base = f"v0:{stamp}:{body}".encode()
        signature = hmac.new(self._signing_secret.encode(), base, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={signature}"}

    def _schedule(self, delivery: EnvelopeDelivery, delay: float) -> None:
        task = asyncio.create_task(self._send_with_retries(delivery, delay))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_with_retries(self, delivery: EnvelopeDelivery, delay: float) -> None:
        """Post an envelope after `delay` seconds, until it is acknowledged.

        It ends unacknowledged after the last retry, or if the app forbids retries. Only events are retried.
        """
        while True:
            await asyncio.sleep(delay)
            delivery.reason = await self._send(delivery)
            self._activity_log.notify()
            if not delivery.reason:
                return
            if delivery.type != "events_api" or delivery.attempt >= len(RETRY_DELAYS_SECONDS):
                return
            delay = RETRY_DELAYS_SECONDS[delivery.attempt] / self._speed
            delivery.attempt += 1

    async def _send(self, delivery: EnvelopeDelivery) -> str:
        """Post an envelope once, and record the delivery.

        Returns:
            Slack's reason for a retry; "" if the app acknowledged the envelope, or forbids retries by a header.
        """
        payload, attempt = delivery.payload, delivery.attempt
        envelope = EnvelopeRecord(delivery.id, delivery.type, payload, time.monotonic(), attempt, delivery.reason)
        delivery.sent.append(envelope)
        self._activity_log.envelopes.append(envelope)
        self._activity_log.notify()
        retry_headers = {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": delivery.reason} if attempt else {}
        try:
            async with asyncio.timeout(ACK_TIMEOUT_SECONDS / self._speed):
                status, headers, response_text = await self._post(
                    self.url, *encode_body(delivery.type, payload), retry_headers
                )
        except TimeoutError:
            return "http_timeout"
        except (aiohttp.ClientError, OSError):
            return "connection_failed"
        if not 200 <= status < 300:
            return "" if headers.get("X-Slack-No-Retry") == "1" else "http_error"
        envelope.response = _parse_response(delivery.type, response_text)
        envelope.acknowledged_at = time.monotonic()
        delivery.acknowledged.set()
        return ""

    async def _post(
        self, url: str, body: str, content_type: str, extra_headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], str]:
        """Post a signed body; return status, headers and text of the response.

        Raises:
            aiohttp.ClientError, OSError: the request failed.
        """
        assert self._session is not None, "the simulator is not entered"
        headers = {"Content-Type": content_type, **self.sign(body), **extra_headers}
        async with self._session.post(url, data=body.encode(), headers=headers) as answer:
            return answer.status, answer.headers, await answer.text()


class EnvelopeSender:
    """Sender of envelopes to the verified request URL, or without one to WebSockets.

    A failed delivery is never repeated by the other transport.
    """

    def __init__(self, sockets: SocketModeServer, requests: RequestUrlClient) -> None:
        self._sockets = sockets
        self._requests = requests

    @property
    def _transport(self) -> SocketModeServer | RequestUrlClient:
        return self._requests if self._requests.url else self._sockets

    @property
    def connection_count(self) -> int:
        return 1 if self._requests.url else self._sockets.connection_count

    def deliver(self, type_: EnvelopeType, payload: dict[str, Any]) -> EnvelopeDelivery:
        return self._transport.deliver(type_, payload)

    def redeliver(self, envelope: EnvelopeRecord) -> None:
        self._transport.redeliver(envelope)

    def discard_pending(self) -> None:
        self._transport.discard_pending()


def encode_body(type_: EnvelopeType, payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return the body and the content type of a request to the request URL.

    An event is JSON. A slash command is a form with its fields, an interaction a form with its JSON in `payload`.
    """
    if type_ == "events_api":
        return json.dumps(payload), "application/json"
    fields = payload if type_ == "slash_commands" else {"payload": json.dumps(payload)}
    form = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
    return urlencode(form), "application/x-www-form-urlencoded"


def _parse_response(type_: EnvelopeType, text: str) -> dict[str, Any] | None:
    """Return the payload in the text of the app's response; None without one.

    Bolt for JavaScript responds with plain text to `ack("...")`.

    Returns:
        The JSON object in the text. For another text in response to a slash command, `{"text": text}`; None for any
        other text.
    """
    with suppress(ValueError):
        response = json.loads(text)
        if isinstance(response, dict):
            return response
    return {"text": text} if text and type_ == "slash_commands" else None
