"""How the app gets into a workspace: what it needs for that, and whether what it has will do."""

from dataclasses import dataclass, field
from typing import Literal

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.api import is_passing, refusal
from channels.slack.hearing import Direct
from channels.slack.streams import Streaming
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

#: What is suggested unless it is told otherwise.
PROMPTS = (
    "What can you help me with?",
    "Summarize a text for me",
    "Draft a reply for me",
    "Explain something to me step by step",
)

#: Slack: the most prompts that may be suggested.
MOST_PROMPTS = 4

_WHERE = "at https://api.slack.com/apps, your app"
_WHERE_BOT_TOKEN = f"It begins with xoxb- and is found {_WHERE}, under OAuth & Permissions."
_WHERE_APP_TOKEN = (
    f"It begins with xapp-, needs the scope connections:write, and is made {_WHERE}, under Basic Information."
)
_WHERE_SCOPES = f"Add them {_WHERE}, under OAuth & Permissions, and install the app again."


#: How Slack reaches the app: by sockets that the app opens, or by requests.
Mode = Literal["socket", "http"]


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """How to reach a workspace, or several, and how to be there.

    Attributes:
        bot_token: of the one workspace; empty if there may be several, in which the app is installed by OAuth.
        app_token: opens sockets.
        prompts: what is suggested to say to the bot.
        signing_secret: what requests are signed with.
        sockets: how many are held.
        external: whether people from other workspaces are served, with whom a channel is shared.
        client_id, client_secret: the app's, by which it gets the tokens of several workspaces.
        answers_bots: whether other bots are answered.
        bot_loop_limit: how often in a row, without a person in between.
    """

    bot_token: str = field(repr=False)
    app_token: str = field(repr=False)
    api_url: str = "https://slack.com/api/"
    streaming: Streaming = "auto"
    direct: Direct = "thread"
    prompts: tuple[str, ...] = PROMPTS
    answers_bots: bool = False
    bot_loop_limit: int = 5
    mode: Mode = "socket"
    signing_secret: str = field(default="", repr=False)
    sockets: int = 1
    external: bool = False
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


def client(settings: SlackSettings) -> AsyncWebClient:
    """A Web API client that tries nothing twice by itself: a call that is made again may take effect twice."""
    return AsyncWebClient(
        settings.bot_token or None, base_url=settings.api_url, timeout=CALL_TIMEOUT, retry_handlers=[]
    )


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
