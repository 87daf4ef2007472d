"""Authentication of the Slack app: tokens, scopes, and a periodic check of the token."""

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
CALL_TIMEOUT = 15

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
OPTIONAL_SCOPES = frozenset({"usergroups:read"})

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
    """Return a Web API client that never retries: a repeated call may take effect twice.

    It connects anew for each call, unless it is given a session.
    """
    return AsyncWebClient(
        settings.bot_token or None, base_url=settings.api_url, timeout=CALL_TIMEOUT, retry_handlers=[]
    )


def make_session() -> aiohttp.ClientSession:
    """Return an HTTP session with unlimited connections, each kept alive for 15 seconds without a call.

    If Slack closes a connection while it is used again, the outcome of that call is unknown.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15.0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT))


async def verify(web: AsyncWebClient, app_token: str) -> str:
    """Try the tokens that are set.

    Returns:
        The bot's name and its workspace.

    Raises:
        SettingsError: a line for each token that Slack refuses, or for missing scopes.
    """
    faults, identity = list[str](), "every workspace that it is installed in"
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
    """Return the answer to a call; None after adding a fault if Slack refuses the token.

    Raises:
        SettingsError: Slack cannot be reached, or its error says nothing of the token.
    """
    try:
        return await call
    except SlackApiError as error:
        status, code, _ = parse_error(error)
        if is_transient(status, code):
            reason = code or f"HTTP {status}"
            raise SettingsError(
                f"SLACK_API_URL: {web.base_url} cannot answer right now ({reason}); try again."
            ) from error
        reason = code or f"HTTP {status}, and nothing that Slack would say"
        faults.append(f"{setting}: Slack says {reason}. {hint}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({type(error).__name__}).") from error
    return None


class TokenMonitor:
    """Checks the token periodically: Slack does not close a socket when it revokes the token.

    Attributes:
        valid_at: the time of the last check that the token passed, in seconds since the epoch.
    """

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web
        self._checks: asyncio.Task[None] | None = None
        self.valid_at = 0.0

    def start(self) -> None:
        """Start to check the token. It counts as valid until the first answer."""
        self.valid_at = time.time()
        checks = run_every(TOKEN_CHECK_SECONDS, self._check, what="auth.test: Slack cannot be reached")
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
