"""Proof, again and again, that the bot's token is good."""

import asyncio
import logging
import time

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.api import refusal
from core.secrets import traced

log = logging.getLogger(__name__)

#: Seconds between two calls that prove it.
PROOF_INTERVAL = 10.0


class Proof:
    """Asks Slack, which says nothing by itself where a token is good no more: a socket stays open without one.

    Attributes:
        at: when the token was good the last time, in seconds since the epoch.
    """

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client
        self._proving: asyncio.Task[None] | None = None
        self.at = 0.0

    def begin(self) -> None:
        """Ask from now on. The token is taken to be good at first."""
        self.at = time.time()
        self._proving = asyncio.create_task(self._prove(), name="slack token")

    async def end(self) -> None:
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.wait([self._proving])

    async def _prove(self) -> None:
        while True:
            await asyncio.sleep(PROOF_INTERVAL)
            try:
                await self._client.auth_test()
                self.at = time.time()
            except SlackApiError as error:
                status, code, _ = refusal(error)
                if status == 429:
                    self.at = time.time()
                else:
                    log.warning("auth.test: Slack says %s", code or f"HTTP {status}")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("auth.test: Slack cannot be reached: %s", traced(error))
