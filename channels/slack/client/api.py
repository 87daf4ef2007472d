"""Slack's Web API: its calls, and what its refusals mean."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from copy import copy
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.base import File, Priority
from channels.rate_limits.caller import PAUSES, Caller, RateLimitDeadlineError, RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters
from channels.slack.client.rate_limits import TIER_4
from channels.slack.client.workspaces import Workspaces
from core.errors import SurfaceError

Answer = Mapping[str, Any]

#: Seconds that sending a file may take.
UPLOAD_TIMEOUT = 60.0

#: Slack: the most characters that say what a picture shows.
_ALT_SIZE = 1_000

#: What a post to a `response_url` is called in the log, and how many it takes, in half an hour.
RESPONSE_URL = "response_url"
RESPONSES = Window(calls=5, seconds=1_800)

#: Slack: errors that say nothing of the call itself.
_PASSING = {
    "file_update_failed",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
}


class SlackApi:
    """Makes calls for all surfaces, which share the limits of their workspace.

    Args:
        client: with the token of the one workspace, or with none.
        workspaces: where there may be several, what each is called with: see `at`.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        *,
        workspaces: Workspaces | None = None,
        pauses: tuple[float, ...] = PAUSES,
        speed: float = 1.0,
    ) -> None:
        self._client = client
        self._workspaces = workspaces
        self._team = ""
        self._caller = Caller("slack", pauses=pauses, speed=speed)

    def at(self, team: str) -> "SlackApi":
        """The one that makes calls in this workspace."""
        if self._workspaces is None or team == self._team:
            return self
        there = copy(self)
        there._team = team
        return there

    @property
    def is_shared(self) -> bool:
        """Whether there may be several workspaces: what is refused in one says nothing of the others."""
        return self._workspaces is not None

    async def token(self) -> str:
        """What the app shows to Slack in this workspace.

        Raises:
            SurfaceError: it is not installed there, or nobody can tell.
        """
        if self._workspaces is None:
            return self._client.token or ""
        try:
            return await self._workspaces.token(self._team, "token")
        except TransientError as error:
            raise SurfaceError(f"the workspace {self._team} cannot be looked up: {error}") from error

    @property
    def limiters(self) -> RateLimiters:
        return self._caller.limiters

    @property
    def address(self) -> str:
        """Where Slack is."""
        return self._client.base_url

    def budget(self, key: Hashable, window: Window) -> RateLimiter:
        return self._caller.limiters.get(key, window)

    async def call(
        self,
        method: str,
        arguments: Mapping[str, Any],
        budget: RateLimiter,
        *,
        within: RateLimiter | None = None,
        priority: Priority = Priority.PROGRESS,
        is_admitted: bool = False,
        reads: bool = False,
        is_form: bool = False,
        found: Callable[[], Awaitable[Answer | None]] | None = None,
    ) -> Answer | None:
        """Call `method`: see `Caller.call`.

        Args:
            reads: Slack: methods that read take their arguments in the query and not as JSON.
            is_form: Slack: some that write take them as a form alone.
        """
        if reads:
            sent = {"http_verb": "GET", "params": dict(arguments)}
        else:
            sent = {"data" if is_form else "json": dict(arguments)}

        async def send() -> Answer:
            return await self._send(method, sent)

        return await self._caller.call(
            method, send, budget, within=within, priority=priority, has_slot=is_admitted, find_effect=found
        )

    async def pages(
        self,
        method: str,
        about: Mapping[str, Any],
        budget: RateLimiter,
        *,
        most: int,
        priority: Priority = Priority.PROGRESS,
    ) -> list[Answer]:
        """The messages that a method tells page by page, of no more than so many pages, and of no more than there is
        room for: see `deadline`.
        """
        messages, cursor = list[Answer](), ""
        for _ in range(most):
            asked = {**about, **({"cursor": cursor} if cursor else {})}
            try:
                page = await self.call(method, asked, budget, priority=priority, reads=True) or {}
            except RateLimitDeadlineError:
                if not messages:
                    raise
                break
            messages += page.get("messages", ())
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                break
        return messages

    async def upload(self, file: File, team: str) -> str:
        """Upload a file, which nobody sees until it is shared, and return its id. After a transient failure it is
        uploaded again.

        Slack: docs.slack.dev/messaging/working-with-files, "Uploading files".
        """

        async def send() -> str:
            form = {
                "filename": file.name,
                "length": len(file.data),
                **({"alt_txt": file.alt[:_ALT_SIZE]} if file.alt else {}),
            }
            place = await self._send("files.getUploadURLExternal", {"data": form})
            await self._post(str(place["upload_url"]), data=file.data)
            return str(place["file_id"])

        limiter = self.budget(("files.getUploadURLExternal", team), TIER_4)
        sent = await self._caller.call("upload", send, limiter, priority=Priority.FINAL)
        assert sent is not None, "only a tick may be dropped"
        return sent

    async def _post(self, url: str, **what: Any) -> None:
        """Post to an address that is good without a token."""
        timeout = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.post(url, **what) as answer,
            ):
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(type(error).__name__) from error
        if status == 429 or status >= 500:
            raise TransientError(f"HTTP {status}")
        if status != 200:
            raise RefusedError("post", f"HTTP {status}")

    async def respond(self, url: str, said: Mapping[str, Any]) -> None:
        """Answer what somebody has done, where Slack has said that it may be. It may come twice.

        Raises:
            SurfaceError: it cannot be answered there.
        """

        async def send() -> str:
            await self._post(url, json=dict(said))
            return url

        await self._caller.call(RESPONSE_URL, send, self.budget((RESPONSE_URL, url), RESPONSES))

    async def once(self, method: str, arguments: Mapping[str, Any], budget: RateLimiter) -> Answer:
        """Call `method`, which has its place, once: see `Caller.once`."""

        async def send() -> Answer:
            return await self._send(method, {"json": dict(arguments)})

        return await self._caller.call_once(method, send, budget)

    async def _send(self, method: str, sent: Mapping[str, Any]) -> Answer:
        headers = await self._headers(method)
        try:
            answer = await self._client.api_call(method, headers=headers, **sent)
        except SlackApiError as error:
            status, code, retry_after = refusal(error)
            if not is_passing(status, code):
                raise RefusedError(method, code) from error
            raise TransientError(
                code or f"HTTP {status}", retry_after=retry_after if status == 429 else None
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(type(error).__name__) from error
        return dict(answer.data) if isinstance(answer.data, dict) else {}

    async def _headers(self, method: str) -> dict[str, str]:
        """What a call of this workspace is made with, if the client does not know that by itself."""
        if self._workspaces is None:
            return {}
        return {"Authorization": f"Bearer {await self._workspaces.token(self._team, method)}"}


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
