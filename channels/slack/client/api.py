"""Client of Slack's Web API that obeys the rate limits, and Slack's error codes."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from copy import copy
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.base import File, Priority
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters
from channels.rate_limits.retries import RETRY_SECONDS, Caller, RateLimitDeadlineError, RefusedError, TransientError
from channels.slack.client.rate_limits import TIER_4
from channels.slack.client.workspaces import WorkspaceTokenStore
from core.errors import SurfaceError

ApiObject = Mapping[str, Any]

#: Seconds that the upload of a file may take.
UPLOAD_TIMEOUT_SECONDS = 60.0

#: Slack: most characters of a picture's alternative text.
_ALT_TEXT_SIZE = 1_000

#: Name of a post to a `response_url` in the log. Slack: such a URL accepts five posts within half an hour.
RESPONSE_URL = "response_url"
RESPONSE_WINDOW = Window(calls=5, seconds=1_800)

#: Slack: errors after which the same call may succeed.
_TRANSIENT_ERRORS = {
    "file_update_failed",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
}


class SlackApi:
    """Client of Slack's Web API that obeys each workspace's rate limits, with retries.

    Args:
        client: has the token of the one workspace, or none if `tokens` has those of several.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        *,
        tokens: WorkspaceTokenStore | None = None,
        pauses: tuple[float, ...] = RETRY_SECONDS,
        speed: float = 1.0,
    ) -> None:
        self._client = client
        self._tokens = tokens
        self._team = ""
        self._caller = Caller("slack", pauses=pauses, speed=speed)

    def for_team(self, team: str) -> "SlackApi":
        """Return a client with the token of a workspace, which shares the rate limiters of this one."""
        if self._tokens is None or team == self._team:
            return self
        api = copy(self)
        api._team = team
        return api

    @property
    def has_many_workspaces(self) -> bool:
        return self._tokens is not None

    async def token(self) -> str:
        """Return the bot's token for the workspace of this client: see `for_team`.

        Raises:
            SurfaceError: the app is not installed in the workspace, or the database cannot be read.
        """
        if self._tokens is None:
            return self._client.token or ""
        try:
            return await self._tokens.get(self._team, "token")
        except TransientError as error:
            raise SurfaceError(f"the workspace {self._team} cannot be looked up: {error}") from error

    @property
    def limiters(self) -> RateLimiters:
        return self._caller.limiters

    @property
    def base_url(self) -> str:
        return self._client.base_url

    def get_limiter(self, key: Hashable, window: Window) -> RateLimiter:
        """Return the limiter of a key. All workspaces share them: a workspace's limit has its id in the key."""
        return self._caller.limiters.get(key, window)

    async def call(
        self,
        method: str,
        arguments: Mapping[str, Any],
        limiter: RateLimiter,
        *,
        outer_limiter: RateLimiter | None = None,
        priority: Priority = Priority.PROGRESS,
        has_slot: bool = False,
        reads: bool = False,
        is_form: bool = False,
        find_effect: Callable[[], Awaitable[ApiObject | None]] | None = None,
    ) -> ApiObject | None:
        """Call a Web API method when its rate limits allow it, with retries: see `Caller.call`.

        Args:
            reads: whether the method only reads. Slack: such methods have their arguments in the query, and not as
                JSON.
            is_form: whether to send the arguments as a form. Slack: some methods that write accept no JSON.
        """
        if reads:
            request = {"http_verb": "GET", "params": dict(arguments)}
        else:
            request = {"data" if is_form else "json": dict(arguments)}

        async def send() -> ApiObject:
            return await self._send(method, request)

        return await self._caller.call(
            method,
            send,
            limiter,
            outer_limiter=outer_limiter,
            priority=priority,
            has_slot=has_slot,
            find_effect=find_effect,
        )

    async def read_pages(
        self,
        method: str,
        arguments: Mapping[str, Any],
        limiter: RateLimiter,
        *,
        max_pages: int,
        priority: Priority = Priority.PROGRESS,
    ) -> list[ApiObject]:
        """Return the `messages` of a paginated method, from at most `max_pages` pages.

        Fewer pages are fetched if the rate limit does not allow another call before the `deadline`. Without any
        message so far, `RateLimitDeadlineError` is raised.
        """
        messages = list[ApiObject]()
        cursor = ""
        for _ in range(max_pages):
            page_arguments = {**arguments, "cursor": cursor or None}  # slack_sdk leaves None out of a query
            try:
                page = await self.call(method, page_arguments, limiter, priority=priority, reads=True) or {}
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
        """Upload a file, and return its id; after a temporary failure, upload it again.

        Nobody sees the file until it is shared. Slack: docs.slack.dev/messaging/working-with-files, "Uploading files".
        """

        async def send() -> str:
            form = {
                "filename": file.name,
                "length": len(file.data),
                "alt_txt": file.alt[:_ALT_TEXT_SIZE] or None,  # slack_sdk leaves None out of a form
            }
            created = await self._send("files.getUploadURLExternal", {"data": form})
            await self._post(str(created["upload_url"]), data=file.data)
            return str(created["file_id"])

        limiter = self.get_limiter(("files.getUploadURLExternal", team), TIER_4)
        file_id = await self._caller.call("upload", send, limiter, priority=Priority.FINAL)
        assert file_id is not None, "only a stream update may be dropped"
        return file_id

    async def _post(self, url: str, **body: Any) -> None:
        """Make a POST request to a URL that needs no token."""
        timeout = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.post(url, **body) as answer,
            ):
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(type(error).__name__) from error
        if status == 429 or status >= 500:
            raise TransientError(f"HTTP {status}")
        if status != 200:
            raise RefusedError("post", f"HTTP {status}")

    async def respond(self, url: str, message: Mapping[str, Any]) -> None:
        """Post a message to an interaction's `response_url`; a retry may post it twice."""

        async def send() -> str:
            await self._post(url, json=dict(message))
            return url

        await self._caller.call(RESPONSE_URL, send, self.get_limiter((RESPONSE_URL, url), RESPONSE_WINDOW))

    async def call_once(self, method: str, arguments: Mapping[str, Any], limiter: RateLimiter) -> ApiObject:
        """Call a method once, in the slot that the caller acquired from `limiter`: see `Caller.call_once`."""

        async def send() -> ApiObject:
            return await self._send(method, {"json": dict(arguments)})

        return await self._caller.call_once(method, send, limiter)

    async def _send(self, method: str, request: Mapping[str, Any]) -> ApiObject:
        headers = await self._headers(method)
        try:
            answer = await self._client.api_call(method, headers=headers, **request)
        except SlackApiError as error:
            status, code, retry_after = parse_error(error)
            if not is_transient(status, code):
                raise RefusedError(method, code) from error
            raise TransientError(
                code or f"HTTP {status}", retry_after=retry_after if status == 429 else None
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(type(error).__name__) from error
        return dict(answer.data) if isinstance(answer.data, dict) else {}

    async def _headers(self, method: str) -> dict[str, str]:
        if self._tokens is None:
            return {}
        return {"Authorization": f"Bearer {await self._tokens.get(self._team, method)}"}


def is_transient(status: int, code: str) -> bool:
    return status == 429 or status >= 500 or code in _TRANSIENT_ERRORS


def parse_error(error: SlackApiError) -> tuple[int, str, float]:
    """Return the HTTP status, Slack's error code and the seconds of the `Retry-After` of an error.

    The code may be empty. The seconds are at least 1, and 1 without the header; 0 if the response is not JSON.
    """
    response: Any = error.response
    if isinstance(response, aiohttp.ClientResponse):  # an answer that is no JSON
        return response.status, "", 0.0
    code = response.data.get("error", "") if isinstance(response.data, dict) else ""
    return response.status_code, code, max(1.0, float(response.headers.get("Retry-After", 1)))
