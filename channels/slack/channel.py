"""Slack, through slack-bolt in Socket Mode."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels import words
from channels.channel import Heard
from channels.commands import Asker
from channels.desk import Desk
from channels.gaps import Bounds, Gaps
from channels.intake import Call, Intake
from channels.slack.api import SlackApi, is_passing, refusal
from channels.slack.hearing import NAME, hear, place
from channels.slack.history import History
from channels.slack.people import People
from channels.slack.reactions import receipts
from channels.slack.socket import PING_INTERVAL, PROOF_INTERVAL, Socket
from channels.slack.streams import Streaming, Streams, StreamSurface
from channels.slack.surface import SlackSurface
from channels.slack.text import plain, to_words, users_named
from channels.slack.tiers import TIER_4
from core.errors import SettingsError, StoreError, SurfaceError
from core.inbound import Inbound
from core.places import Places
from core.secrets import traced
from core.shares import Uses

log = logging.getLogger(__name__)

#: Seconds that connecting may take, and that one call of the Web API may take.
CONNECT_TIMEOUT = 30.0
CALL_TIMEOUT = 15

#: Seconds that a stop waits for confirmations and receipts.
SETTLE_TIMEOUT = 2.0

#: The slash command that starts over.
RESET_COMMAND = "/reset"

#: What the bot may not do without; `manifest.json` asks for the same.
SCOPES = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "chat:write",
        "commands",
        "files:write",
        "groups:history",
        "im:history",
        "metadata.message:read",
        "mpim:history",
        "reactions:write",
        "users:read",
    }
)

_WHERE = "at https://api.slack.com/apps, your app"
_WHERE_BOT_TOKEN = f"It begins with xoxb- and is found {_WHERE}, under OAuth & Permissions."
_WHERE_APP_TOKEN = (
    f"It begins with xapp-, needs the scope connections:write, and is made {_WHERE}, under Basic Information."
)
_WHERE_SCOPES = f"Add them {_WHERE}, under OAuth & Permissions, and install the app again."


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """How to reach a workspace."""

    bot_token: str = field(repr=False)
    app_token: str = field(repr=False)
    api_url: str = "https://slack.com/api/"
    streaming: Streaming = "auto"


class SlackChannel:
    """The Slack adapter. To be made inside a running event loop."""

    name = NAME
    pulse = max(PING_INTERVAL, PROOF_INTERVAL)

    def __init__(self, settings: SlackSettings, desk: Desk, places: Places, bounds: Bounds) -> None:
        self._desk = desk
        self._app_token = settings.app_token
        self._client = client(settings)
        self._api = SlackApi(self._client)
        self._people = People(self._api)
        self._receipts = receipts(self._api)
        self._streams = None if settings.streaming == "edit" else Streams(settings.streaming)
        self._intake = Intake(desk, self._receipts, self._surface_of, self.locale)
        self._app = AsyncApp(
            name=NAME,  # Bolt: without one it looks at its callers' sources, for a tenth of a second
            client=self._client,
            before_authorize=self._dispatch,
            attaching_conversation_kwargs_enabled=False,
        )
        self._app.command(RESET_COMMAND)(self._take_reset_command)
        look = History(self._api).look
        self._gaps = Gaps(NAME, places, bounds, take=self._intake.take, look=look, heard_at=self.heard_at)
        self._socket = Socket(self._app, settings.app_token, on_back=self._gaps.open)

    async def start(self) -> None:
        await verify(self._client, self._app_token)
        try:
            await asyncio.wait_for(self._socket.open(), CONNECT_TIMEOUT)
        except TimeoutError as error:
            await self._socket.close()
            raise SettingsError(
                f"SLACK_API_URL: no socket could be opened within {CONNECT_TIMEOUT:g} s; "
                "can this machine reach wss:// addresses?"
            ) from error
        await self._gaps.start()

    async def stop(self) -> None:
        await self._socket.close()
        await self._intake.settle(SETTLE_TIMEOUT)
        await self._gaps.stop()

    def tell(self) -> Uses:
        return self._api.pacer.tell()

    def share(self, others: Sequence[Uses]) -> None:
        self._api.pacer.share(others)

    def heard_at(self) -> float:
        return self._socket.heard_at

    async def reconnect(self) -> None:
        await self._socket.reopen()

    def surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> SlackSurface:
        if self._streams is None:
            return SlackSurface(self._api, self._receipts, address, turn_id)
        return StreamSurface(self._api, self._receipts, address, turn_id, self._streams)

    async def locale(self, inbound: Inbound) -> str:
        return await self._people.locale(str(inbound.address["team"]), inbound.author)

    async def read(self, inbound: Inbound) -> Heard:
        """The message in words; in a channel, where several may speak, the speaker's name comes first."""
        users = {inbound.author, *users_named(inbound.text)}
        names = await self._people.names(str(inbound.address["team"]), users)
        is_direct = str(inbound.address["channel"]).startswith("D")
        return Heard.of(to_words(inbound.text, names), names[inbound.author], inbound.attachments, alone=is_direct)

    async def _dispatch(
        self,
        body: dict[str, Any],
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002 - Bolt's name
    ) -> BoltResponse:
        """Hear every event before Bolt acknowledges it, so that what is acknowledged is kept.

        What fails here is not acknowledged, and Slack delivers it again. Bolt comes afterwards: it would
        acknowledge an event for which its own `auth.test` fails.
        """
        if body.get("command") == RESET_COMMAND:
            return await next()
        if body.get("type") == "block_actions":  # Slack: it waits for 3 seconds, and does not deliver it again
            for action in body.get("actions", ()):
                self._intake.run(self._take_press(body, str(action.get("action_id"))), name="press")
            return BoltResponse(status=200)
        try:
            if body.get("type") == "event_callback" and (call := hear(body)):
                await self._take(call)
        except Exception as error:
            log.error("an event could not be taken: %s", traced(error))
            return BoltResponse(status=500)
        return BoltResponse(status=200)

    async def _take(self, call: Call) -> None:
        """Take in a message. What the database does not take is kept as soon as it does: Slack, which delivers it again
        as well, may do so later, and does so three times at the most.
        """
        try:
            await self._intake.take(call)
        except StoreError:
            self._gaps.missed(call)
            raise

    async def _take_press(self, body: Mapping[str, Any], button: str) -> None:
        """Do what the button asks for, and tell the one who pressed it, and nobody else, if there is a word to say."""
        try:
            channel, user = body["channel"]["id"], body["user"]["id"]
            team = (body.get("team") or {}).get("id") or body["user"].get("team_id", "")
            locale = await words.told(self._people.locale(team, user))
            if word := await self._intake.press(button, author=user, locale=locale):
                await self._whisper(team, channel, user, body["container"].get("thread_ts"), word)
        except SurfaceError as error:
            log.error("who has pressed a button cannot be told: %s", error)
        except Exception as error:
            log.error("a press could not be taken: %s", traced(error))

    async def _whisper(self, team: str, channel: str, user: str, thread_ts: str | None, text: str) -> None:
        said = {
            "channel": channel,
            "user": user,
            "text": plain(text),
            **({"thread_ts": thread_ts} if thread_ts else {}),
        }
        await self._api.call("chat.postEphemeral", said, self._api.budget(("chat.postEphemeral", team), TIER_4))

    async def _take_reset_command(self, ack: AsyncAck, command: dict[str, Any]) -> None:
        """Start over in the thread of this channel or direct message in which the asker spoke last.

        Slack allows no slash commands in threads and tells none with one.
        """
        team, channel, user = command["team_id"], command["channel_id"], command["user_id"]
        session = await self._desk.inbox.latest_session(place=place(team, channel), author=user)
        root = session.rpartition(":")[2] if session else ""
        asker = Asker(
            session_id=session,
            place=place(team, channel),
            author=user,
            channel=NAME,
            address={"team": team, "channel": channel, "thread_ts": root, "ts": root},
            event_key=f"{NAME}:{team}:{channel}:command:{command['trigger_id']}",
            locale=await words.told(self._people.locale(team, user)),
        )
        await ack((await self._intake.commands.run("reset", "", asker)).text)

    def _surface_of(self, inbound: Inbound) -> SlackSurface:
        return self.surface(inbound.address, turn_id=inbound.event_key)


def client(settings: SlackSettings) -> AsyncWebClient:
    """A Web API client that tries nothing twice by itself: a call that is made again may take effect twice."""
    return AsyncWebClient(settings.bot_token, base_url=settings.api_url, timeout=CALL_TIMEOUT, retry_handlers=[])


async def verify(web: AsyncWebClient, app_token: str) -> str:
    """Try both tokens for real.

    Returns:
        Who the bot is, and where.

    Raises:
        SettingsError: a line for each token that Slack does not take, or for scopes that are missing.
    """
    faults = []
    who = ""
    try:
        answer = await web.auth_test()
        who = f"{answer['user']} in {answer['team']}"
        granted = set(str(answer.headers.get("x-oauth-scopes", "")).split(","))
        if missing := sorted(SCOPES - granted):
            faults.append(f"SLACK_BOT_TOKEN: the app lacks the scopes {', '.join(missing)}. {_WHERE_SCOPES}")
    except SlackApiError as error:
        faults.append(f"SLACK_BOT_TOKEN: Slack says {_code(error, web)}. {_WHERE_BOT_TOKEN}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({type(error).__name__}).") from error
    try:
        await web.apps_connections_open(app_token=app_token)
    except SlackApiError as error:
        faults.append(f"SLACK_APP_TOKEN: Slack says {_code(error, web)}. {_WHERE_APP_TOKEN}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({type(error).__name__}).") from error
    if faults:
        raise SettingsError(*faults)
    return who


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
