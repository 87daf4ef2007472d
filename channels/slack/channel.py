"""Slack, through slack-bolt in Socket Mode."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.response import BoltResponse

from channels import words
from channels.channel import Heard
from channels.commands import Asker
from channels.desk import Desk
from channels.gaps import Bounds, Gaps
from channels.intake import Intake
from channels.slack import events
from channels.slack.api import SlackApi
from channels.slack.blocks import pressed
from channels.slack.hearing import NAME, hear, place, root_of, team_of
from channels.slack.history import History
from channels.slack.login import SlackSettings, client, verify
from channels.slack.people import People
from channels.slack.prompts import suggest
from channels.slack.reactions import receipts
from channels.slack.sessions import Sessions
from channels.slack.socket import PING_INTERVAL, PROOF_INTERVAL, Socket
from channels.slack.streams import Streams, StreamSurface
from channels.slack.surface import SlackSurface
from channels.slack.text import plain, to_words, users_named
from channels.slack.tiers import TIER_4
from core.errors import SettingsError, SurfaceError
from core.inbound import Inbound
from core.places import Places
from core.secrets import traced
from core.shares import Uses

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT = 30.0

#: Seconds that a stop waits for confirmations and receipts.
SETTLE_TIMEOUT = 2.0

#: The slash command that starts over.
RESET_COMMAND = "/reset"


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
        self._settings = settings
        self._sessions = Sessions(self._api)
        self._streams = None if settings.streaming == "edit" else Streams(settings.streaming)
        self._intake = Intake(desk, self._receipts, self._surface_of, self.locale)
        self._app = AsyncApp(
            name=NAME,  # Bolt: without one it looks at its callers' sources, for a tenth of a second
            client=self._client,
            before_authorize=self._dispatch,
            attaching_conversation_kwargs_enabled=False,
        )
        self._app.command(RESET_COMMAND)(self._take_reset_command)
        look = History(self._api, settings.direct).look
        self._gaps = Gaps(NAME, places, bounds, take=self._intake.take, look=look, heard_at=self.heard_at, holds=False)
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

    async def aclose(self) -> None:
        """Let Slack know of the end of what was shown last; to be called when nothing is shown any more."""
        await self._sessions.settle(SETTLE_TIMEOUT)

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
            return SlackSurface(self._api, self._receipts, address, turn_id, sessions=self._sessions)
        return StreamSurface(self._api, self._receipts, address, turn_id, self._streams, sessions=self._sessions)

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
                self._intake.run(self._take_press(body, pressed(action)), name="press")
            return BoltResponse(status=200)
        try:
            if body.get("type") == "event_callback":
                await self._take_event(body)
        except Exception as error:
            log.error("an event could not be taken: %s", traced(error))
            return BoltResponse(status=500)
        return BoltResponse(status=200)

    async def _take_event(self, body: Mapping[str, Any]) -> None:
        event = body.get("event") or {}
        match event.get("type"):
            case "app_mention" | "message":
                if call := hear(body, self._settings.direct):
                    # what is not kept now is kept as soon as it can be: Slack, which delivers it again as well, may do
                    # so later, and does so three times at the most
                    await self._gaps.hear(call)
            case events.OPENED if event.get("tab") == "messages" and self._settings.prompts:
                prompts = suggest(self._api, team_of(body), event["channel"], self._settings.prompts)
                self._intake.run(prompts, name="prompts")

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
        root = root_of(session) if session else ""
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
