"""Shows a reply in a Slack thread."""

from collections.abc import Mapping
from typing import Any

from channels.calls import RefusedError
from channels.channel import STATUS_RESERVE, Limits, Priority
from channels.messages import Edited, MessageSurface, Posted
from channels.pacer import Budget, Window
from channels.receipts import Receipts
from channels.slack.api import Answer, SlackApi
from channels.slack.text import SlackMarkdown, plain, size

#: One size for every way that Slack has of showing text: `chat.update` fails above about 4,000 characters,
#: and its limits on blocks and streams are larger.
LIMITS = Limits(chunk_size=3_500, measure=size, reserve=STATUS_RESERVE, dialect=SlackMarkdown())

#: Slack: one message a second in a channel, with short bursts. A shorter window would allow two bursts on end, and
#: without the quarter of a second on top what the network delays would come too often.
POSTS = Window(calls=5, seconds=5.25)

#: Slack's Tier 3, for each method by itself: 50 calls a minute for an app in a workspace; with half a second on top
#: for what the network delays.
TIER_3 = Window(calls=50, seconds=60.5)

#: Marks what was posted, so that it is found again when Slack's answer to its posting was lost.
_METADATA = "parley_chunk"

#: Slack: what it says of a message that somebody has deleted, or that may not be edited any more.
_NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed"}

#: The most of a message's plain text that goes into its notification, in characters.
_NOTICE_SIZE = 3_000


class SlackSurface(MessageSurface):
    """One reply in one thread.

    Args:
        address: `team`, `channel`, `thread_ts`, and `ts` of the message that is answered.
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
        self._turn_id = turn_id

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
            answer = await self._api.call(
                "chat.update",
                {"channel": self._channel, "ts": message_id, **_content(text)},
                self._edits,
                priority=priority,
                is_admitted=self.is_admitted(self._edits),
            )
        except RefusedError as refusal:
            if refusal.code not in _NOT_EDITABLE:
                raise
            return Edited.GONE
        return Edited.DROPPED if answer is None else Edited.DONE

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
                "metadata": {
                    "event_type": _METADATA,
                    "event_payload": {"turn": self._turn_id, "chunk": position},
                },
                **_content(text),
            },
            self._posts,
            priority=priority,
            is_admitted=self.is_admitted(self._posts),
            found=found,
        )
        return None if answer is None else Posted(str(answer["ts"]), is_new=answer is not stood)

    async def _own(self) -> dict[int, str]:
        return {position: str(message["ts"]) for position, message in (await self._messages()).items()}

    async def _messages(self) -> dict[int, Answer]:
        """The messages of this reply, by their positions, as Slack has them."""
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
        own = {}
        for message in (answer or {}).get("messages", ()):
            metadata = message.get("metadata") or {}
            payload = metadata.get("event_payload") or {}
            if metadata.get("event_type") == _METADATA and payload.get("turn") == self._turn_id:
                own[int(payload["chunk"])] = message
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
