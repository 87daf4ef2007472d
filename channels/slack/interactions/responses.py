"""What one person alone gets to see.

Slack: docs.slack.dev/interactivity/handling-user-interaction. What somebody does comes with a `response_url`, which
takes an answer for him alone wherever he is, but shows it in the channel, even to what is done in a thread;
`chat.postEphemeral` reaches him in the thread, where the bot is one of those in the channel.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Any

from channels.base import Button, File
from channels.rate_limits.caller import RefusedError
from channels.slack.client.api import SlackApi
from channels.slack.client.blocks import content
from channels.slack.client.rate_limits import TIER_4
from channels.slack.replies.surface import LIMITS, POSTS, SlackSurface
from channels.slack.session_ids import NAME, place
from channels.slack.text import inert


class Handed(Enum):
    """How somebody has got a file.

    Attributes:
        AS_TEXT: as the answer to what he has done.
        HERE: where he is, or in a thread there.
        DIRECTLY: in his direct messages, which is elsewhere.
    """

    AS_TEXT = auto()
    HERE = auto()
    DIRECTLY = auto()


#: Links are not unfolded.
_QUIET = {"unfurl_links": False, "unfurl_media": False}


#: Under which name a deed that is kept until it is done has the time at which it came (seconds since the epoch).
KEPT_AT = "kept_at"


@dataclass(frozen=True, slots=True)
class Doer:
    """Somebody who does something else than write a message.

    Attributes:
        thread_ts: the thread that it is done in; empty if it is in none, or that is not told.
        response_url: where he can be answered.
        key: the same for each delivery of the same deed, and for no other: the trigger, as Slack calls it.
        home: the workspace that he belongs to, if that is told; else it is the one that it is done in.
        until: what was said after it (seconds since the epoch) is not meant by it.
    """

    team: str
    channel: str
    user: str
    thread_ts: str
    response_url: str
    key: str
    home: str = ""
    until: float = inf

    @classmethod
    def of_command(cls, body: Mapping[str, Any]) -> "Doer":
        """Who has given a slash command."""
        where = str(body["team_id"]), str(body["channel_id"]), str(body["user_id"])
        return cls(*where, "", str(body["response_url"]), str(body["trigger_id"]), until=body.get(KEPT_AT, inf))

    @classmethod
    def of_press(cls, body: Mapping[str, Any]) -> "Doer":
        """Who has pressed a button, or used a shortcut of a message."""
        said = body.get("message") or body.get("container") or {}
        thread = str(said.get("thread_ts") or "")
        url = str(body.get("response_url") or "")
        channel, user = str(body["channel"]["id"]), str(body["user"]["id"])
        home = str(body["user"].get("team_id") or "")
        until = body.get(KEPT_AT, inf)
        return cls(team_of_deed(body), channel, user, thread, url, str(body["trigger_id"]), home, until)

    @classmethod
    def of_modal(cls, body: Mapping[str, Any]) -> "Doer":
        """Who has sent a modal that keeps where it was opened."""
        kept, user = json.loads(body["view"]["private_metadata"]), body["user"]
        # Slack: what one person alone sees in a thread is shown only where there is one already
        thread = "" if kept["root"] == kept["ts"] else str(kept["root"])
        where = str(kept["channel"]), str(user["id"]), thread, str(kept["url"])
        return cls(team_of_deed(body), *where, str(body["view"]["id"]), str(user.get("team_id") or ""))

    @classmethod
    def of_deed(cls, body: Mapping[str, Any]) -> "Doer":
        """Whichever it is."""
        if "command" in body:
            return cls.of_command(body)
        return cls.of_modal(body) if body.get("type") == "view_submission" else cls.of_press(body)

    @property
    def place(self) -> str:
        return place(self.team, self.channel)

    @property
    def event_key(self) -> str:
        return f"{NAME}:{self.team}:{self.channel}:deed:{self.key}"


def team_of_deed(body: Mapping[str, Any]) -> str:
    """The workspace in which somebody does something. Slack: none is named for an app of a whole organisation. Who
    presses a button in a channel that is shared may be of another workspace than the app, whose message tells its own.
    """
    said = (body.get("message") or {}).get("team") if body.get("type") == "block_actions" else None
    return str(said or (body.get("team") or {}).get("id") or body["user"].get("team_id") or "")


class Private:
    """Tells it.

    Args:
        surface: the place with an address.
    """

    def __init__(self, api: SlackApi, surface: Callable[[Mapping[str, Any]], SlackSurface]) -> None:
        self._api = api
        self._surface = surface

    async def whisper(self, doer: Doer, text: str) -> None:
        """Say something in the thread where he is.

        Raises:
            SurfaceError: he cannot be told.
        """
        said = {
            "channel": doer.channel,
            "user": doer.user,
            **content(text),
            **({"thread_ts": doer.thread_ts} if doer.thread_ts else {}),
        }
        api = self._api.at(doer.team)
        await api.call("chat.postEphemeral", said, api.budget(("chat.postEphemeral", doer.team), TIER_4))

    async def answer(self, doer: Doer, text: str, *, replaces: bool = False) -> None:
        """Say something to what he has done: in the thread where he has done it, if it is one that the bot is in.

        Args:
            replaces: whether it takes the place of what he has pressed.

        Raises:
            SurfaceError: he cannot be told.
        """
        if doer.thread_ts and not replaces:
            with suppress(RefusedError):
                return await self.whisper(doer, text)
        how = {"replace_original": True} if replaces else {"response_type": "ephemeral"}
        try:
            await self._api.respond(doer.response_url, {**_QUIET, **content(text), **how})
        except RefusedError:  # it was good for half an hour
            await self.whisper(doer, text)

    async def ask(self, doer: Doer, text: str, choices: Sequence[Button]) -> None:
        """Have him choose.

        Raises:
            SurfaceError: he cannot be asked.
        """
        await self._api.respond(doer.response_url, {**content(text, choices), "response_type": "ephemeral"})

    async def show(self, doer: Doer, view: Mapping[str, Any]) -> None:
        """Open a modal for him. Slack: within three seconds, or not at all.

        Raises:
            SurfaceError: it cannot be opened.
        """
        opened = {"trigger_id": doer.key, "view": dict(view)}
        api = self._api.at(doer.team)
        await api.call("views.open", opened, api.budget(("views.open", doer.team), TIER_4))

    async def hand(self, doer: Doer, text: str, file: File, *, thread_ts: str) -> Handed:
        """Give him a file: in direct messages there, else as text if it is short and to be read, else into his direct
        messages.

        Args:
            thread_ts: of direct messages, where.

        Returns:
            How he has got it.

        Raises:
            SurfaceError: he cannot get it.
        """
        written = inert(file.data.decode())
        whole = f"{text}\n\n{written}"
        is_text = file.name.endswith(".md") and LIMITS.measure(whole) <= LIMITS.chunk_size
        if is_text and not doer.channel.startswith("D"):
            await self.answer(doer, whole)
            return Handed.AS_TEXT
        channel, api = doer.channel, self._api.at(doer.team)
        if not channel.startswith("D"):
            # Slack: a post to a user goes into the messages with him, and says which these are
            posts = api.budget(("chat.postMessage", doer.team, doer.user), POSTS)
            said = {"channel": doer.user, **_QUIET, **content(text)}
            opened = await api.call("chat.postMessage", said, posts)
            assert opened is not None, "only a tick may be dropped"
            channel, thread_ts = str(opened["channel"]), str(opened["ts"])
        address = {"team": doer.team, "channel": channel, "thread_ts": thread_ts, "ts": thread_ts}
        await self._surface(address).hand(file)
        return Handed.HERE if channel == doer.channel else Handed.DIRECTLY
