"""Shows a reply in a Slack thread."""

import logging
from collections.abc import Mapping
from itertools import count
from typing import Any

from channels.calls import RefusedError
from channels.channel import STATUS_RESERVE, Limits, Priority
from channels.messages import Edited, MessageSurface, Posted
from channels.pacer import Budget, Window
from channels.receipts import Receipts
from channels.slack.api import Answer, SlackApi
from channels.slack.text import SlackMarkdown, plain, size

log = logging.getLogger(__name__)

#: One size for every way that Slack has of showing text: `chat.update` fails above about 4,000 characters,
#: and its limits on blocks and streams are larger.
LIMITS = Limits(chunk_size=3_500, measure=size, reserve=STATUS_RESERVE, dialect=SlackMarkdown())

#: Slack: one message a second in a channel, with short bursts. A shorter window would allow two bursts on end, and
#: without the quarter of a second on top what the network delays would come too often.
POSTS = Window(calls=5, seconds=5.25)

#: Slack's Tier 3, for each method by itself: 50 calls a minute for an app in a workspace; with half a second on top
#: for what the network delays.
TIER_3 = Window(calls=50, seconds=60.5)

#: Slack's Tier 2: 20 calls a minute.
TIER_2 = Window(calls=20, seconds=60.5)

#: Marks what was posted, so that it is found again when Slack's answer to its posting was lost.
_METADATA = "parley_chunk"

#: Slack: what it says of a message that somebody has deleted, or that may not be edited any more.
_NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed"}

#: Slack: what it says of an edit of a message that is being streamed.
_STILL_STREAMED = "streaming_state_conflict"

#: The most of a message's plain text that goes into its notification, in characters.
_NOTICE_SIZE = 3_000


class SlackSurface(MessageSurface):
    """One reply in one thread.

    Args:
        address: `team`, `channel`, `thread_ts`, and `ts` of the message that is answered; `user`, who wrote it, and
            `user_team`, his workspace; `bot`, the user that the app acts as.
    """

    limits = LIMITS

    def __init__(self, api: SlackApi, receipts: Receipts, address: Mapping[str, Any], turn_id: str) -> None:
        super().__init__()
        self._api = api
        self._receipts = receipts
        self._address = address
        self._team = str(address["team"])
        self._channel = str(address["channel"])
        self._thread_ts = str(address["thread_ts"])
        self._asked_ts = str(address["ts"])
        self._bot = str(address.get("bot", ""))
        self._turn_id = turn_id
        self._streamed: dict[str, int] = {}  # the positions of messages that bear no mark, since they were streamed

    async def begun(self) -> None:
        self._receipts.take_back(self._address)

    @property
    def _posts(self) -> Budget:
        return self._api.budget(("chat.postMessage", self._team, self._channel), POSTS)

    @property
    def _edits(self) -> Budget:
        return self._api.budget(("chat.update", self._team), TIER_3)

    async def _edit(self, message_id: str, text: str, priority: Priority) -> Edited:
        try:
            return await self._try_edit(message_id, text, priority)
        except RefusedError as refusal:
            if refusal.code != _STILL_STREAMED:
                raise
        await self._stop(message_id)
        return await self._try_edit(message_id, text, priority)

    async def _try_edit(self, message_id: str, text: str, priority: Priority) -> Edited:
        position = self._streamed.get(message_id)
        try:
            answer = await self._api.call(
                "chat.update",
                {
                    "channel": self._channel,
                    "ts": message_id,
                    **({} if position is None else {"metadata": self._mark(position)}),
                    **_content(text),
                },
                self._edits,
                priority=priority,
                is_admitted=self.is_admitted(self._edits),
            )
        except RefusedError as refusal:
            if refusal.code not in _NOT_EDITABLE:
                raise
            return Edited.GONE
        if answer is None:
            return Edited.DROPPED
        self._streamed.pop(message_id, None)
        return Edited.DONE

    @property
    def _stops(self) -> Budget:
        return self._api.budget(("chat.stopStream", self._team), TIER_2)

    async def _stop(self, message_id: str) -> None:
        """End a stream as it is, so that its message can be edited."""
        try:
            await self._api.call(
                "chat.stopStream",
                {"channel": self._channel, "ts": message_id},
                self._stops,
                is_admitted=self.is_admitted(self._stops),
            )
        except RefusedError as refusal:  # Slack has ended it already; if that is not so, the edit will tell
            log.info("%s", refusal)

    async def _post(self, position: int, text: str, priority: Priority, previous: str | None) -> Posted | None:
        stood: Answer | None = None

        async def found() -> Answer | None:
            nonlocal stood
            stood = (await self._messages()).get(position) if self._turn_id else None
            return stood

        answer = await self._api.call(
            "chat.postMessage",
            {
                "channel": self._channel,
                "thread_ts": self._thread_ts,
                "unfurl_links": False,
                "unfurl_media": False,
                "metadata": self._mark(position),
                **_content(text),
            },
            self._posts,
            priority=priority,
            is_admitted=self.is_admitted(self._posts),
            found=found,
        )
        return None if answer is None else Posted(str(answer["ts"]), is_new=answer is not stood)

    def _mark(self, position: int) -> dict[str, Any]:
        """What a message of this reply is found again by."""
        return {"event_type": _METADATA, "event_payload": {"turn": self._turn_id, "chunk": position}}

    async def _own(self) -> dict[int, str]:
        return {position: str(message["ts"]) for position, message in (await self._messages()).items()}

    async def _messages(self) -> dict[int, Answer]:
        """The messages of this reply, by their positions, as Slack has them.

        A message that is being streamed bears no mark. But then it is the only one: of the bot's own messages behind
        the question, all others have the mark of some reply.
        """
        answer = await self._api.call(
            "conversations.replies",
            {
                "channel": self._channel,
                "ts": self._thread_ts,
                "oldest": self._asked_ts,
                "include_all_metadata": True,
                "limit": 200,
            },
            self._api.budget(("conversations.replies", self._team), TIER_3),
            reads=True,
        )
        own, unmarked = {}, []
        for message in (answer or {}).get("messages", ()):
            metadata = message.get("metadata") or {}
            payload = metadata.get("event_payload") or {}
            if metadata.get("event_type") == _METADATA:
                if payload.get("turn") == self._turn_id:
                    own[int(payload["chunk"])] = message
            elif self._bot and message.get("user") == self._bot and float(message["ts"]) > float(self._asked_ts):
                unmarked.append(message)
        free = (position for position in count() if position not in own)
        for position, message in zip([next(free) for _ in unmarked], unmarked, strict=True):
            own[position] = message
            self._streamed[str(message["ts"])] = position
        return own

    async def _delete(self, message_id: str) -> None:
        try:
            await self._api.call(
                "chat.delete",
                {"channel": self._channel, "ts": message_id},
                self._api.budget(("chat.delete", self._team), TIER_3),
            )
        except RefusedError as refusal:
            if refusal.code != "message_not_found":
                raise


def _content(text: str) -> dict[str, Any]:
    """Markdown for those who read it, and plain text for notifications."""
    notice = plain(text.replace("&lt;", "<"))
    return {
        "blocks": [{"type": "markdown", "text": text}],
        "text": notice if len(notice) <= _NOTICE_SIZE else f"{notice[:_NOTICE_SIZE]}…",
    }
