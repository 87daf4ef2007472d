"""Authentication of the Slack app: tokens, scopes, and a periodic check of the token."""

import asyncio
import logging
import time

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.api import is_passing, refusal
from channels.slack.settings import SlackSettings
from core.concurrency.tasks import run_every
from core.errors import SettingsError

#: Seconds that one call of the Web API may take.
CALL_TIMEOUT = 15

#: What the bot may not do without; the manifest asks for the same.
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

#: What it does without where it is not granted; the manifest asks for it as well.
WISHES = frozenset({"usergroups:read"})

_WHERE = "at https://api.slack.com/apps, your app"
_WHERE_BOT_TOKEN = f"It begins with xoxb- and is found {_WHERE}, under OAuth & Permissions."
_WHERE_APP_TOKEN = (
    f"It begins with xapp-, needs the scope connections:write, and is made {_WHERE}, under Basic Information."
)
_WHERE_SCOPES = f"Add them {_WHERE}, under OAuth & Permissions, and install the app again."

log = logging.getLogger(__name__)

#: Seconds between two calls that prove it.
PROOF_INTERVAL = 10.0


def client(settings: SlackSettings) -> AsyncWebClient:
    """A Web API client that tries nothing twice by itself: a call that is made again may take effect twice. It connects
    anew for each call, unless it is given a session.
    """
    return AsyncWebClient(
        settings.bot_token or None, base_url=settings.api_url, timeout=CALL_TIMEOUT, retry_handlers=[]
    )


def connections() -> aiohttp.ClientSession:
    """What calls have their connections from, as many as there are calls at once; kept for 15 seconds without one. One
    that Slack closes in the moment in which it is used again is a call of which nobody knows whether it took effect.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15.0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT))


async def verify(web: AsyncWebClient, app_token: str) -> str:
    """Try the tokens for real, those that there are.

    Returns:
        Who the bot is, and where.

    Raises:
        SettingsError: a line for each token that Slack does not take, or for scopes that are missing.
    """
    faults, who = list[str](), "every workspace that it is installed in"
    if web.token:
        who = await _try_bot(web, faults)
    if app_token:
        await _try_app(web, app_token, faults)
    if faults:
        raise SettingsError(*faults)
    return who


async def _try_bot(web: AsyncWebClient, faults: list[str]) -> str:
    try:
        answer = await web.auth_test()
    except SlackApiError as error:
        faults.append(f"SLACK_BOT_TOKEN: Slack says {_code(error, web)}. {_WHERE_BOT_TOKEN}")
        return ""
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({type(error).__name__}).") from error
    granted = set(str(answer.headers.get("x-oauth-scopes", "")).split(","))
    if missing := sorted(SCOPES - granted):
        faults.append(f"SLACK_BOT_TOKEN: the app lacks the scopes {', '.join(missing)}. {_WHERE_SCOPES}")
    return f"{answer['user']} in {answer['team']}"


async def _try_app(web: AsyncWebClient, app_token: str, faults: list[str]) -> None:
    try:
        await web.apps_connections_open(app_token=app_token)
    except SlackApiError as error:
        faults.append(f"SLACK_APP_TOKEN: Slack says {_code(error, web)}. {_WHERE_APP_TOKEN}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({type(error).__name__}).") from error


def _code(error: SlackApiError, web: AsyncWebClient) -> str:
    """Slack's word for what is wrong with a token.

    Raises:
        SettingsError: it says nothing of the token.
    """
    status, code, _ = refusal(error)
    if is_passing(status, code):
        said = code or f"HTTP {status}"
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot answer right now ({said}); try again.") from error
    return code or f"HTTP {status}, and nothing that Slack would say"


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
        """Check the token from now on. It counts as good until the first answer."""
        self.at = time.time()
        proving = run_every(PROOF_INTERVAL, self._prove, what="auth.test: Slack cannot be reached")
        self._proving = asyncio.create_task(proving, name="slack token")

    async def end(self) -> None:
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.wait([self._proving])

    async def _prove(self) -> None:
        try:
            await self._client.auth_test()
        except SlackApiError as error:
            status, code, _ = refusal(error)
            if status != 429:
                log.warning("auth.test: Slack says %s", code or f"HTTP {status}")
                return
        self.at = time.time()
