"""Shows a reply by Slack's native streams (`chat.startStream` and its kin), and by edits where those do not serve.

What is appended to a stream cannot be taken back. So only what is settled of a text is appended; and when a text comes
that does not go on from there, or a call fails, or the stream comes near its end, the stream is stopped and its message
edited from then on.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachetools import TTLCache

from channels.base import FINAL_PRIORITIES, Priority
from channels.i18n.messages import PLACEHOLDER
from channels.rate_limits.caller import RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, PlannedMessage, PostedMessage
from channels.slack.client.api import SlackApi
from channels.slack.client.blocks import below
from channels.slack.client.rate_limits import TIER_2, TIER_4
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.surface import SlackSurface
from channels.slack.settings import Streaming
from channels.slack.text import inert
from core.concurrency import event_loop

log = logging.getLogger(__name__)

#: A stream dies after about five minutes and at about 11,000 bytes; it is stopped well before, in seconds and bytes.
LIFETIME = 240.0
MOST_BYTES = 9_000

#: Channels in which Slack has refused a stream, and the seconds for which no other one is begun there.
MAX_REFUSED, REFUSED_SECONDS = 10_000, 600.0

#: Slack: the most that a task's title may hold, in characters.
_TITLE_SIZE = 256


class Streams:
    """What all replies that may be streamed have in common.

    Args:
        lifetime: for how many seconds a stream is used.
    """

    def __init__(self, streaming: Streaming = "auto", *, lifetime: float = LIFETIME) -> None:
        self.streaming = streaming
        self.lifetime = lifetime
        self._refused: TTLCache[str, bool, float] = TTLCache(MAX_REFUSED, REFUSED_SECONDS)

    def refuse(self, channel: str) -> None:
        """Begin no stream in this channel for a while."""
        self._refused[channel] = True

    def are_in(self, channel: str) -> bool:
        return channel not in self._refused


@dataclass(frozen=True, slots=True)
class Card:
    """The task in a stream that says what goes on; the first one says that something does.

    Attributes:
        status: what it says; empty in the first one, as long as that says no more.
        is_open: whether it goes on.
    """

    number: int = 0
    status: str = ""
    title: str = ""
    is_open: bool = False

    @property
    def is_placeholder(self) -> bool:
        return self.is_open and not self.status

    def turned(self, status: str, waited: str, *, is_silent: bool) -> tuple["Card", list[dict[str, Any]]]:
        """The card that is to stand, and the chunks that make it stand.

        Args:
            waited: for how long nothing has come.
            is_silent: whether there is nothing to read yet.
        """
        title = inert(f"{status.strip('_') or PLACEHOLDER}{waited}")[:_TITLE_SIZE]
        if self.is_open and (status == self.status or self.is_placeholder) and (status or is_silent):
            card = replace(self, status=status, title=title)
            return card, [] if title == self.title else [card._chunk("in_progress")]
        if self.is_placeholder:  # it goes with the end of the stream
            return self, []
        ended = self.ended()
        if not status and (self.number or not is_silent):
            return replace(self, is_open=False), ended
        card = Card(self.number + 1, status, title, is_open=True)
        return card, [*ended, card._chunk("in_progress")]

    def ended(self) -> list[dict[str, Any]]:
        """The chunks that leave no task open. Slack shows one that is as failed."""
        return [self._chunk("complete")] if self.is_open else []

    def _chunk(self, status: str) -> dict[str, Any]:
        title = self.title if status != "complete" or self.is_placeholder else inert(self.status.strip("_")).rstrip("…")
        return {"type": "task_update", "id": str(self.number), "title": title[:_TITLE_SIZE], "status": status}


@dataclass(frozen=True, slots=True)
class Stream:
    """A message that is being streamed, and what of it Slack has confirmed.

    Attributes:
        size: what it holds, in bytes.
        ends_at: the loop's time at which it is to be stopped.
    """

    ts: str
    position: int
    ends_at: float
    text: str
    card: Card
    size: int

    def holds(self, chunks: Sequence[Mapping[str, Any]]) -> bool:
        """Whether it takes these, too."""
        return event_loop.now() < self.ends_at and self.size + _size(chunks) <= MOST_BYTES


class StreamSurface(SlackSurface):
    """One reply in one thread, by streams as long as they serve."""

    def __init__(
        self,
        api: SlackApi,
        queued_reactions: QueuedReactions,
        address: Mapping[str, Any],
        turn_id: str,
        streams: Streams,
        *,
        assistant: AssistantThreads | None = None,
    ) -> None:
        super().__init__(api, queued_reactions, address, turn_id, assistant=assistant)
        self._streams = streams
        self._user = str(address.get("user", ""))
        self._user_team = str(address.get("user_team", ""))
        self._may_stream = bool(self._user and self._bot and self._thread_ts)
        self._is_native = False  # whether the message that grows is one that is streamed
        self._stream: Stream | None = None

    def try_open(self) -> bool:
        """The way that a message goes is chosen here."""
        if not self._is_open and self._is_better_streamed():
            self._open_message()  # what is not to stay of it goes by an edit
            self._is_native = True
            self._tracking.enter_context(self._stops.reserve())
            self._tracking.enter_context(self._appends.track_reply(self._began_at))
        return super().try_open()

    def _close_message(self) -> None:
        self._is_native = False
        super()._close_message()

    def _goes_on(self, stream: Stream) -> Stream:
        """What stands of a stream now. Its end takes an edit only if a card is to go then."""
        if not stream.card.is_placeholder:
            self._release_reserve()
        return stream

    def _is_better_streamed(self) -> bool:
        """Whether Slack takes a stream here, and whether a message is better shown by one.

        Each stream that is begun has to be stopped, and both have a small budget: so none is begun without a place to
        stop it. In a channel, Slack lets one person see it grow, and all others what it began with: so, in `auto`,
        one is begun only where nobody else reads along yet. And it must have its turns as often as edits would.
        """
        if not (self._may_stream and self._streams.are_in(self._channel)):
            return False
        if not (self._stops.can_reserve(1) and self._starts.can_reserve(1)):
            return False
        if not self._can_end_message():
            return False
        if self._streams.streaming == "native":
            return True
        is_between_two = self._is_direct or self._asked_ts == self._thread_ts
        return is_between_two and self._appends.calls_per_reply >= self._edit_limiter.calls_per_reply

    @property
    def _is_direct(self) -> bool:
        return self._channel.startswith("D")

    @property
    def _starts(self) -> RateLimiter:
        return self._api.budget(("chat.startStream", self._team), TIER_2)

    @property
    def _appends(self) -> RateLimiter:
        return self._api.budget(("chat.appendStream", self._team), TIER_4)

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        if self._get_next_limiter(is_post=is_post, is_last_edit=is_last_edit) in (
            self._starts,
            self._stops,
        ):  # those are no idle calls
            priority = min(priority, Priority.PROGRESS)
        await super().acquire_slot(priority, is_post=is_post, is_last_edit=is_last_edit, outdated_since=outdated_since)

    def _get_next_limiter(self, *, is_post: bool, is_last_edit: bool) -> RateLimiter:
        if self._stream is not None:
            return self._stops if is_last_edit else self._appends
        if is_post and self._is_native and not is_last_edit:
            return self._starts
        return super()._get_next_limiter(is_post=is_post, is_last_edit=is_last_edit)

    def _go_by_edits(self) -> None:
        """From here on, the reply is shown by edits."""
        self._may_stream = False
        if self._is_native:
            self._go_on_by_edits()

    def _go_on_by_edits(self) -> None:
        """The message that grows is shown by edits."""
        self._is_native = False
        self._tracking.close()
        self._reserve_final_edit()
        self._track_message()

    async def _post_planned(self, piece: PlannedMessage, previous: str | None) -> PostedMessage | None:
        if self._is_native and not piece.is_complete and self._stops.can_reserve(0):
            self._stream = await self._start(piece)
            if self._stream is not None:
                return PostedMessage(self._stream.ts, is_new=False)
            if self._is_native:
                self._go_on_by_edits()
        return await super()._post_planned(piece, previous)

    async def _start(self, piece: PlannedMessage) -> Stream | None:
        """Begin a stream, if there may be one."""
        if not (self.use_slot(self._starts) or self._starts.try_acquire(Priority.PROGRESS)):
            return None
        text = _settled(piece)
        card, chunks = Card().turned(piece.plan.status, piece.plan.elapsed, is_silent=not text)
        chunks += _said(text)
        # Slack: the recipient is required in channels, where only he sees the text grow.
        recipient = {} if self._is_direct else {"recipient_user_id": self._user, "recipient_team_id": self._user_team}
        try:
            answer = await self._api.once(
                "chat.startStream",
                {
                    "channel": self._channel,
                    "thread_ts": self._thread_ts,
                    "unfurl_links": False,
                    "unfurl_media": False,
                    "chunks": chunks,
                    **recipient,
                },
                self._starts,
            )
            ts = str(answer["ts"])
        except RefusedError as refusal:
            log.warning("%s; for a while, replies there are shown by edits", refusal)
            self._streams.refuse(self._channel)
            ts = ""
        except TransientError as failure:
            ts = "" if failure.retry_after is not None else await self._begun_at(piece.position)
        if not ts:
            self._go_by_edits()
            return None
        self._streamed[ts] = piece.position
        ends_at = event_loop.now() + self._streams.lifetime
        return self._goes_on(Stream(ts, piece.position, ends_at, text=text, card=card, size=_size(chunks)))

    async def _begun_at(self, position: int) -> str:
        """The message of a stream of whose start no answer came; empty if there is none as yet. It may come still, and
        is taken away then, when the last word stands.
        """
        ts = (await self._find_own()).get(position, "")
        if not ts:
            self._has_strays = self._is_start_lost = True
        return ts

    async def _edit_planned(self, message_id: str, piece: PlannedMessage) -> EditOutcome:
        stream = self._stream
        if stream is None or stream.ts != message_id:
            return await super()._edit_planned(message_id, piece)
        goes_on = piece.chunk.text.startswith(stream.text)
        if goes_on and not piece.is_complete:
            grown = await self._grow(stream, piece)
            if grown is not None:
                return grown
        self._stream = None
        if not (goes_on and piece.is_complete and await self._finish(stream, piece)):
            await self._stop(stream.ts)
            if goes_on or not piece.is_complete:  # not if only its end has moved to the next message
                self._go_by_edits()
        elif not stream.card.is_placeholder:
            self._shown[message_id] = piece.content
        else:  # all of the text stands, so that taking the card away may wait for others
            piece = _urgent(piece)
        return await super()._edit_planned(
            message_id, piece if piece.plan.priority in FINAL_PRIORITIES else _urgent(piece)
        )

    async def _grow(self, stream: Stream, piece: PlannedMessage) -> EditOutcome | None:
        """Append what is new; none if the stream cannot go on."""
        new = _settled(piece)[len(stream.text) :]
        is_silent = not (stream.text or new)
        card, chunks = stream.card.turned(piece.plan.status, piece.plan.elapsed, is_silent=is_silent)
        chunks += _said(new)
        if not stream.holds(chunks):
            return None
        if not chunks:
            return EditOutcome.DONE
        if not (self.use_slot(self._appends) or self._appends.try_acquire(Priority.STREAM_UPDATE)):
            return EditOutcome.DROPPED
        try:
            await self._api.once(
                "chat.appendStream", {"channel": self._channel, "ts": stream.ts, "chunks": chunks}, self._appends
            )
        except RefusedError as refusal:  # Slack has ended it
            log.info("%s", refusal)
            return None
        except TransientError as failure:  # whether it was appended is not known, unless it came too often
            return None if failure.retry_after is None else EditOutcome.DROPPED
        size = stream.size + _size(chunks)
        self._stream = self._goes_on(replace(stream, text=stream.text + new, card=card, size=size))
        return EditOutcome.DONE

    async def _finish(self, stream: Stream, piece: PlannedMessage) -> bool:
        """Stop a stream with the rest of its text, and what is to be pressed below; whether that is known to have
        succeeded.
        """
        priority = piece.plan.priority if piece.plan.priority in FINAL_PRIORITIES else Priority.PROGRESS
        rest = [*stream.card.ended(), *_said(piece.chunk.text[len(stream.text) :])]
        if not stream.holds(rest):
            return False
        if not self.use_slot(self._stops):
            await self._stops.acquire(priority)
        try:
            await self._api.once(
                "chat.stopStream",
                {
                    "channel": self._channel,
                    "ts": stream.ts,
                    "metadata": self._mark(stream.position),
                    **({"chunks": rest} if rest else {}),
                    **({"blocks": below(piece.buttons)} if piece.buttons else {}),
                },
                self._stops,
            )
        except RefusedError as refusal:
            log.info("%s", refusal)
            return False
        except TransientError:
            return False
        self._streamed.pop(stream.ts, None)
        return True


def _urgent(piece: PlannedMessage) -> PlannedMessage:
    """The piece, by a call that is not an idle one."""
    return replace(piece, plan=replace(piece.plan, priority=Priority.PROGRESS))


def _settled(piece: PlannedMessage) -> str:
    """What of a piece may be appended. The start of one of Slack's tokens waits for what comes of it."""
    return piece.chunk.text[: piece.chunk.stable_length].rstrip("<")


def _said(text: str) -> list[dict[str, Any]]:
    return [{"type": "markdown_text", "text": text}] if text else []


def _size(chunks: Sequence[Mapping[str, Any]]) -> int:
    """In bytes; what a task says counts twice, as others have measured it."""
    return sum(
        len(chunk["text"].encode()) if "text" in chunk else 2 * len(json.dumps(chunk, ensure_ascii=False).encode())
        for chunk in chunks
    )
