"""Calls of Slack's Web API: within its limits, and tried again where that can help."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.channel import Priority
from channels.pacer import Pacer, Window
from core.errors import SurfaceError

log = logging.getLogger(__name__)

Answer = Mapping[str, Any]

#: Seconds to wait before a call that failed in passing is made again; after the last one, eight minutes from the
#: first, it is given up.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 240.0)

#: Slack: errors that say nothing of the call itself.
_PASSING = {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}


class RefusedError(SurfaceError):
    """Slack refused a call for good.

    Attributes:
        code: Slack's word for why.
    """

    def __init__(self, method: str, code: str) -> None:
        super().__init__(f"{method}: {code}")
        self.code = code


class Caller:
    """Makes calls for all surfaces of a workspace, which share its limits."""

    def __init__(self, client: AsyncWebClient, *, pauses: tuple[float, ...] = PAUSES) -> None:
        self._client = client
        self._pacer = Pacer()
        self._pauses = pauses

    async def call(
        self,
        method: str,
        arguments: Mapping[str, Any],
        *,
        key: Hashable,
        window: Window,
        priority: Priority = Priority.PROGRESS,
        reads: bool = False,
        found: Callable[[], Awaitable[Answer | None]] | None = None,
    ) -> Answer | None:
        """Call `method`. A call that comes too often is made again when Slack says, however often it says so.

        Args:
            key: what shares the limit `window`.
            reads: Slack: methods that read take their arguments in the query and not as JSON.
            found: for a call that must not take effect twice: looks whether it has, when its answer was lost.

        Returns:
            The answer; none for a tick that had no place or failed in passing.

        Raises:
            RefusedError: Slack will not have it, however often it is asked.
            SurfaceError: Slack stayed out of reach.
        """
        sent = {"http_verb": "GET", "params": dict(arguments)} if reads else {"json": dict(arguments)}
        pauses = iter(self._pauses)
        while True:
            if not await self._pacer.admit(key, window, priority):
                return None
            try:
                answer = await self._client.api_call(method, **sent)
            except SlackApiError as error:
                status, code, retry_after = refusal(error)
                if not is_passing(status, code):
                    raise RefusedError(method, code) from error
                if status == 429:
                    self._pacer.refused(key, retry_after)
                cause = code or f"HTTP {status}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                cause, status = type(error).__name__, 0
            else:
                return dict(answer.data) if isinstance(answer.data, dict) else {}
            log.info("%s did not succeed (%s)", method, cause)
            if priority is Priority.TICK:
                return None
            if status == 429:
                continue
            if found is not None and (effect := await found()) is not None:
                return effect
            if (pause := next(pauses, None)) is None:
                raise SurfaceError(f"{method}: Slack cannot be reached ({cause})")
            await asyncio.sleep(pause)


def is_passing(status: int, code: str) -> bool:
    """Whether Slack's refusal says nothing of the call itself, but of the moment."""
    return status == 429 or status >= 500 or code in _PASSING


def refusal(error: SlackApiError) -> tuple[int, str, float]:
    """HTTP status, Slack's error code, and the seconds that it asked to wait."""
    response: Any = error.response
    if isinstance(response, aiohttp.ClientResponse):  # an answer that was no JSON
        return response.status, "", 0.0
    code = response.data.get("error", "") if isinstance(response.data, dict) else ""
    return response.status_code, code, max(1.0, float(response.headers.get("Retry-After", 1)))
