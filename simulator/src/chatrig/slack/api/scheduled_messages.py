"""Web API methods that schedule messages, list and delete scheduled messages.

Slack: docs.slack.dev/reference/methods/chat.scheduleMessage and docs.slack.dev/reference/methods/
chat.deleteScheduledMessage.
"""

import asyncio
from dataclasses import dataclass
from time import time
from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.content import parse_content, parse_post_fields, truncate
from chatrig.slack.api.requests import Arguments, SlackError, paginate, parse_ts
from chatrig.slack.state.markup import SlackContent
from chatrig.slack.state.messages import SlackConversation, SlackMessage
from chatrig.slack.state.workspace import create_id

MAX_AHEAD_SECONDS = 120 * 86_400
#: "You cannot schedule more than 30 messages to post within a 5-minute window to the same channel."
MAX_MESSAGES_PER_WINDOW, WINDOW_SECONDS = 30, 300
#: A message that is due in fewer seconds cannot be deleted any more.
MIN_DELETE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledMessage:
    """Message that is to be posted at a later time.

    Attributes:
        post_at, created_at: Unix times in seconds.
        details: further fields of the `SlackMessage`.
        timer: posts the message.
    """

    id: str
    channel: SlackConversation
    content: SlackContent
    post_at: int
    created_at: int
    details: dict[str, Any]
    timer: asyncio.TimerHandle


class ScheduledMessageMethods:
    """Web API methods for scheduled messages.

    Args:
        speed: factor by which the time from scheduling to posting is shorter than in Slack.
    """

    def __init__(self, api: WebApi, *, speed: float) -> None:
        self._api = api
        self._workspace = api.workspace
        self._speed = speed
        self._scheduled: dict[str, ScheduledMessage] = {}
        api.register("chat.scheduleMessage", self.schedule_message, scope="chat:write")
        api.register("chat.scheduledMessages.list", self.list_messages)
        api.register("chat.deleteScheduledMessage", self.delete_message, scope="chat:write")

    def stop(self) -> None:
        """Discard all scheduled messages, so that none is posted any more."""
        for message in self._scheduled.values():
            message.timer.cancel()
        self._scheduled.clear()

    def schedule_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_destination(arguments)
        post_at = self._parse_post_at(channel, arguments)
        content, warning = truncate(parse_content(arguments))
        details = parse_post_fields(self._api, channel, arguments)
        id_ = create_id("Q")
        delay = (post_at - time()) / self._speed
        timer = asyncio.get_running_loop().call_later(delay, self._post, id_)
        self._scheduled[id_] = ScheduledMessage(id_, channel, content, post_at, int(time()), details, timer)
        shown = self._api.payloads.post_response(SlackMessage("", channel, content, [], **details))
        message = {name: value for name, value in shown.items() if name != "ts"} | {"type": "delayed_message"}
        return {"scheduled_message_id": id_, "channel": channel.id, "post_at": post_at, "message": message} | warning

    def list_messages(self, arguments: Arguments) -> dict[str, Any]:
        """Run `chat.scheduledMessages.list`: return a page of scheduled messages.

        The message that is due first comes first. The argument `channel` selects those of one channel, `oldest` and
        `latest` (both inclusive) those that are due in between.

        Returns:
            The response's fields: `scheduled_messages`, each with `id`, `channel_id`, `post_at`, `date_created` and
            `text`, and `response_metadata` with `next_cursor` ("" on the last page).

        Raises:
            SlackError: `invalid_channel`, `invalid_ts_NAME`, or as for `paginate`.
        """
        channel = arguments.text("channel")
        if channel and channel not in self._workspace.channels:
            raise SlackError("invalid_channel")
        oldest, latest = (parse_ts(arguments, name) for name in ("oldest", "latest"))
        found = [
            message
            for message in sorted(self._scheduled.values(), key=lambda message: (message.post_at, message.id))
            if channel in ("", message.channel.id)
            and (oldest is None or message.post_at >= oldest)
            and (latest is None or message.post_at <= latest)
        ]
        page, cursor = paginate(found, lambda message: message.id, arguments, default=100)
        listed = [
            {
                "id": message.id,
                "channel_id": message.channel.id,
                "post_at": message.post_at,
                "date_created": message.created_at,
                "text": message.content.text,
            }
            for message in page
        ]
        return {"scheduled_messages": listed, "response_metadata": {"next_cursor": cursor}}

    def delete_message(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        message = self._scheduled.get(arguments.get_required("scheduled_message_id"))
        now = asyncio.get_running_loop().time()
        if (
            message is None
            or message.channel is not channel
            or message.timer.when() - now <= MIN_DELETE_SECONDS / self._speed
        ):
            raise SlackError("invalid_scheduled_message_id")
        message.timer.cancel()
        del self._scheduled[message.id]
        return {}

    def _post(self, id_: str) -> None:
        """Post a scheduled message that is due.

        It is discarded if the bot cannot post in the channel any more.
        """
        message = self._scheduled.pop(id_)
        try:
            self._api.require_writable(message.channel)
        except SlackError:
            return
        self._workspace.post_message(message.channel, message.content, **message.details)

    def _parse_post_at(self, channel: SlackConversation, arguments: Arguments) -> int:
        """Return the argument `post_at`, a Unix time in seconds.

        Raises:
            SlackError: `invalid_time`, `time_in_past`, `time_too_far`, or `restricted_too_many` if too many messages of
                the channel are due within five minutes.
        """
        text = arguments.get_required("post_at")
        if not text.isdecimal():
            raise SlackError("invalid_time")
        post_at, now = int(text), time()
        if post_at <= now:
            raise SlackError("time_in_past")
        if post_at > now + MAX_AHEAD_SECONDS:
            raise SlackError("time_too_far")
        times = sorted(
            [post_at, *(message.post_at for message in self._scheduled.values() if message.channel is channel)]
        )
        spans = zip(times, times[MAX_MESSAGES_PER_WINDOW:], strict=False)
        if any(last - first < WINDOW_SECONDS for first, last in spans):
            raise SlackError("restricted_too_many")
        return post_at
