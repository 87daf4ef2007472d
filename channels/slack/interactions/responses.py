"""Private answers to interactions, and modals.

Slack: docs.slack.dev/interactivity/handling-user-interaction. An interaction comes with a `response_url`. An answer
that is posted to this URL is shown only to the user, in any channel; but outside the thread, even if the user acted in
one. `chat.postEphemeral` shows an answer in the thread, if the bot is a member of the channel.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from channels.base import Button, File
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.rate_limits.retries import RefusedError
from channels.slack.client.blocks import message_content
from channels.slack.client.rate_limits import TIER_4
from channels.slack.events.parser import workspace_of
from channels.slack.platform import SlackPlatform
from channels.slack.replies.surface import LIMITS, POST_WINDOW
from channels.slack.session_ids import PLATFORM, place_id
from channels.slack.text import escape_tokens
from core.inbox.entries import EntryKind, InboxEntry
from core.messages.inbox_message import InboxMessage

#: Links are not unfurled.
_NO_UNFURLING = {"unfurl_links": False, "unfurl_media": False}


@dataclass(frozen=True, slots=True)
class ResponseTarget:
    """User and place of an interaction, to whom private answers are sent.

    Attributes:
        thread_ts: the `ts` of the thread of the interaction; empty outside threads, or if Slack does not send it.
        key: the id that is the same for each delivery of the interaction: of the trigger, the view or the event.
        home_team: the id of the user's own workspace, often the same as `team`; empty if unknown: `team` then counts as
            theirs.
    """

    team: str
    channel: str
    user: str
    thread_ts: str
    response_url: str
    key: str
    home_team: str = ""

    @classmethod
    def of_command(cls, body: Mapping[str, Any]) -> "ResponseTarget":
        ids = str(body["team_id"]), str(body["channel_id"]), str(body["user_id"])
        return cls(*ids, "", str(body["response_url"]), str(body["trigger_id"]))

    @classmethod
    def of_message(cls, body: Mapping[str, Any]) -> "ResponseTarget":
        """Return the target for the payload of a button press or message shortcut."""
        message = body.get("message") or body.get("container") or {}
        ids = _team(body), str(body["channel"]["id"]), str(body["user"]["id"]), str(message.get("thread_ts") or "")
        home_team = str(body["user"].get("team_id") or "")
        return cls(*ids, str(body.get("response_url") or ""), str(body["trigger_id"]), home_team)

    @classmethod
    def of_form(cls, body: Mapping[str, Any], about: Mapping[str, Any]) -> "ResponseTarget":
        """Return the target for a modal's `view_submission`; `about` is its parsed `private_metadata`.

        The thread is empty if `about` is a thread's first message, or in no thread.
        """
        user = body["user"]
        # Slack: an ephemeral message in a thread is shown only if the thread exists
        thread = "" if about["root"] == about["ts"] else str(about["root"])
        ids = _team(body), str(about["channel"]), str(user["id"]), thread
        return cls(*ids, str(about["url"]), str(body["view"]["id"]), str(user.get("team_id") or ""))

    @classmethod
    def of_stop(cls, body: Mapping[str, Any]) -> "ResponseTarget":
        """Return the target for the event of a press of Slack's own stop button."""
        event = body["event"]
        thread = str(event.get("thread_ts") or "")
        return cls(workspace_of(body), str(event["channel"]), str(event["user"]), thread, "", str(body["event_id"]))

    @property
    def place(self) -> str:
        return place_id(self.team, self.channel)

    def to_entry(self, kind: EntryKind, values: Mapping[str, Any], *, session: str = "", root: str = "") -> InboxEntry:
        """Return an entry of this user, sent now; `root` is the `ts` of the session's thread."""
        message = InboxMessage(
            event_key=f"{PLATFORM}:{self.team}:{self.channel}:command:{self.key}",
            session_id=session,
            place=self.place,
            platform=PLATFORM,
            address={"team": self.team, "channel": self.channel, "thread_ts": root, "ts": root},
            author=self.user,
            text="",
            sent_at=time.time(),
        )
        return InboxEntry(kind, message, values, asdict(self))


def _team(body: Mapping[str, Any]) -> str:
    """Return the id of the workspace in which the bot's app gets an interaction.

    Slack: an interaction of an app of a whole organisation has no workspace; the user's workspace is returned. A user
    who presses a button in a shared channel may be of another workspace; the message's workspace is returned.
    """
    message_team = (body.get("message") or {}).get("team") if body.get("type") == "block_actions" else None
    return str(message_team or (body.get("team") or {}).get("id") or body["user"].get("team_id") or "")


class PrivateResponder:
    """Sends ephemeral messages and files to a user, and opens modals.

    Each method raises `SurfaceError` if Slack refuses the call or cannot be reached.
    """

    def __init__(self, platform: SlackPlatform) -> None:
        self._api = platform.api
        self._platform = platform

    async def send_ephemeral(self, target: ResponseTarget, text: str, buttons: Sequence[Button] = ()) -> None:
        """Post a message that only the user sees, in the thread of the interaction.

        Without a thread, it is posted in the channel. Slack refuses it if the bot is no member of the channel.
        """
        message = {"channel": target.channel, "user": target.user, **message_content(text, buttons)}
        if target.thread_ts:
            message["thread_ts"] = target.thread_ts
        api = self._api.for_team(target.team)
        await api.call("chat.postEphemeral", message, api.get_limiter(("chat.postEphemeral", target.team), TIER_4))

    async def respond(
        self, target: ResponseTarget, text: str, buttons: Sequence[Button] = (), *, replaces: bool = False
    ) -> None:
        """Answer an interaction with a text and buttons that only the user sees.

        The text appears in the thread of the interaction if the bot is a member of the channel, else in the channel.
        Without a valid `response_url`, it is sent by `send_ephemeral`, which needs the bot in the channel. With
        `replaces`, it replaces the message with the pressed button.
        """
        if not target.response_url:
            return await self.send_ephemeral(target, text, buttons)
        if target.thread_ts and not replaces:
            with suppress(RefusedError):
                return await self.send_ephemeral(target, text, buttons)
        kind = {"replace_original": True} if replaces else {"response_type": "ephemeral"}
        try:
            await self._api.respond(target.response_url, {**_NO_UNFURLING, **message_content(text, buttons), **kind})
        except RefusedError:  # Slack: a `response_url` is valid for half an hour
            await self.send_ephemeral(target, text, buttons)

    async def offer_choices(self, target: ResponseTarget, text: str, choices: Sequence[Button]) -> None:
        """Post a text and buttons that only the user sees to the `response_url`, which must be set."""
        await self._api.respond(target.response_url, {**message_content(text, choices), "response_type": "ephemeral"})

    async def open_modal(self, target: ResponseTarget, view: Mapping[str, Any]) -> None:
        """Open a modal for the user. Slack: only within three seconds of the interaction.

        The target is one of `of_command` or `of_message`: only their `key` is a trigger id.
        """
        arguments = {"trigger_id": target.key, "view": dict(view)}
        api = self._api.for_team(target.team)
        await api.call("views.open", arguments, api.get_limiter(("views.open", target.team), TIER_4))

    async def deliver_file(
        self, target: ResponseTarget, text: str, file: File, say: MessageCatalog, *, thread_ts: str
    ) -> str:
        """Send a text file (UTF-8) to a user privately; return the text to answer with.

        In direct messages, the file is posted in the thread. Elsewhere, a Markdown file becomes part of the returned
        text if both fit into one message. For any other file, `text` is sent to the user in a direct message, and the
        file in the thread of that message.
        """
        is_direct = target.channel.startswith("D")
        answer = f"{text}\n\n{escape_tokens(file.data.decode())}"
        if not is_direct and file.name.endswith(".md") and LIMITS.measure(answer) <= LIMITS.chunk_size:
            return answer
        channel = target.channel
        api = self._api.for_team(target.team)
        if not is_direct:
            # Slack: a post to a user goes into the direct messages with them, and returns their channel
            limiter = api.get_limiter(("chat.postMessage", target.team, target.user), POST_WINDOW)
            message = {"channel": target.user, **_NO_UNFURLING, **message_content(text)}
            posted = await api.call("chat.postMessage", message, limiter)
            assert posted is not None, "only a stream update may be dropped"
            channel = str(posted["channel"])
            thread_ts = str(posted["ts"])
        address = {"team": target.team, "channel": channel, "thread_ts": thread_ts, "ts": thread_ts}
        await self._platform.create_surface(address).post_file(file)
        if not is_direct:
            return say(words.SENT_AS_DM)
        return text if thread_ts == target.thread_ts else say(words.SENT_IN_THREAD)
