"""Authentication of the Slack app: tokens, scopes, and periodic checks."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.api import is_transient, parse_error
from channels.slack.settings import SlackSettings
from core.concurrency.tasks import run_every
from core.errors import SettingsError

#: Seconds that one call of the Web API may take.
CALL_TIMEOUT_SECONDS = 15

#: Scopes that the bot needs; the manifest requests them.
SCOPES = frozenset(
    {
        "app_mentions:read",
        "assistant:write",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "metadata.message:read",
        "mpim:history",
        "reactions:write",
        "users:read",
    }
)

#: Scopes that the bot uses if they are granted; the manifest requests them too.
OPTIONAL_SCOPES = frozenset({"im:write", "usergroups:read"})

_APP_PAGE = "at https://api.slack.com/apps, your app"
_BOT_TOKEN_HINT = f"It begins with xoxb- and is found {_APP_PAGE}, under OAuth & Permissions."
_APP_TOKEN_HINT = (
    f"It begins with xapp-, needs the scope connections:write, and is made {_APP_PAGE}, under Basic Information."
)
_SCOPES_HINT = f"Add them {_APP_PAGE}, under OAuth & Permissions, and install the app again."

log = logging.getLogger(__name__)

#: Seconds between two checks of the token.
TOKEN_CHECK_SECONDS = 10.0


def make_web_client(settings: SlackSettings) -> AsyncWebClient:
    """Return a Web API client that never retries; without a `session`, it opens one connection per call."""
    return AsyncWebClient(
        settings.bot_token or None, base_url=settings.api_url, timeout=CALL_TIMEOUT_SECONDS, retry_handlers=[]
    )


def make_session(*traces: aiohttp.TraceConfig) -> aiohttp.ClientSession:
    """Return an HTTP session for any number of connections, which the caller closes.

    A connection is closed once it has been idle for 15 s. The time is short, since Slack may close an idle connection
    just when a call reuses it: the outcome of that call is then unknown.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15.0)
    timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_SECONDS)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trace_configs=list(traces))


async def verify_tokens(web: AsyncWebClient, app_token: str) -> str:
    """Check the tokens with Slack, and the scopes of the bot's token; return a text for operators.

    Raises:
        SettingsError: a token is refused, scopes are missing, or Slack cannot be reached.
    """
    faults = list[str]()
    identity = "every workspace that it is installed in"
    if web.token and (answer := await _try(web, web.auth_test(), "SLACK_BOT_TOKEN", _BOT_TOKEN_HINT, faults)):
        granted = set(str(answer.headers.get("x-oauth-scopes", "")).split(","))
        if missing := sorted(SCOPES - granted):
            faults.append(f"SLACK_BOT_TOKEN: the app lacks the scopes {', '.join(missing)}. {_SCOPES_HINT}")
        identity = f"{answer['user']} in {answer['team']}"
    if app_token:
        opened = web.apps_connections_open(app_token=app_token)
        await _try(web, opened, "SLACK_APP_TOKEN", _APP_TOKEN_HINT, faults)
    if faults:
        raise SettingsError(*faults)
    return identity


async def _try(web: AsyncWebClient, call: Awaitable[Any], setting: str, hint: str, faults: list[str]) -> Any:
    """Await a call that checks a token; append a sentence to `faults` if Slack refuses the token."""
    try:
        return await call
    except SlackApiError as error:
        status, code, _ = parse_error(error)
        if is_transient(status, code):
            reason = code or f"HTTP {status}"
            raise SettingsError(
                f"SLACK_API_URL: {web.base_url} cannot answer right now ({reason}); try again."
            ) from error
        reason = code or f"HTTP {status}, without an answer of Slack"
        faults.append(f"{setting}: Slack says {reason}. {hint}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({type(error).__name__}).") from error
    return None


class TokenMonitor:
    """Checks the bot's token periodically. Slack: it keeps the sockets of a revoked token.

    A failed check is logged and leaves `valid_at`, the time at which a check last passed (0 before `start`), as it is.
    A check that hits a rate limit (429) counts as passed.
    """

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web
        self._checks: asyncio.Task[None] | None = None
        self.valid_at = 0.0

    def start(self) -> None:
        """Set `valid_at` to now; check the token every `TOKEN_CHECK_SECONDS` until `stop`."""
        self.valid_at = time.time()
        checks = run_every(TOKEN_CHECK_SECONDS, self._check, failure="auth.test: Slack cannot be reached")
        self._checks = asyncio.create_task(checks, name="slack token")

    async def stop(self) -> None:
        if self._checks is not None:
            self._checks.cancel()
            await asyncio.wait([self._checks])

    async def _check(self) -> None:
        try:
            await self._web.auth_test()
        except SlackApiError as error:
            status, code, _ = parse_error(error)
            if status != 429:
                log.warning("auth.test: Slack says %s", code or f"HTTP {status}")
                return
        self.valid_at = time.time()
