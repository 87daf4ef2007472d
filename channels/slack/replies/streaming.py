"""Surface of replies that uses Slack's streams (`chat.startStream` and others).

Text in a stream cannot be changed, so only text that will not change is appended. The stream is stopped, and its
message is edited from then on, in three cases: a new text does not continue the streamed text, a call fails, or the
stream nears its limits of time and size.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from cachetools import TTLCache

from channels.base import FINAL_PRIORITIES, Plan, Priority, ShownToolCall, ToolCallState
from channels.i18n.messages import PLACEHOLDER
from channels.rate_limits.caller import RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, PlannedMessage, PostedMessage
from channels.slack.client.api import SlackApi
from channels.slack.client.blocks import button_blocks
from channels.slack.client.rate_limits import TIER_2, TIER_4
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.surface import SlackSurface
from channels.slack.settings import Streaming
from channels.slack.text import escape_tokens
from core.concurrency import event_loop

log = logging.getLogger(__name__)

#: Slack ends a stream after about five minutes or 11,000 bytes (measured); it is stopped before that.
STREAM_SECONDS = 240.0
MAX_STREAM_BYTES = 9_000

#: The most channels in memory in which Slack refused a stream, and the seconds for which no stream is tried in them.
MAX_REFUSED, REFUSED_SECONDS = 10_000, 600.0

#: Slack: most characters of a task's title.
_TITLE_SIZE = 256

_FINAL_STATUSES = (ToolCallState.DONE.value, ToolCallState.FAILED.value)


class StreamPolicy:
    """Decides in which channels replies are streamed; all replies share one policy.

    Args:
        streaming: `auto` or `native`: see `Streaming`.
        seconds: the age in seconds at which a stream is stopped; edits show the rest of its reply.
    """

    def __init__(self, streaming: Streaming = "auto", *, seconds: float = STREAM_SECONDS) -> None:
        self.streaming = streaming
        self.seconds = seconds
        self._refused: TTLCache[str, bool, float] = TTLCache(MAX_REFUSED, REFUSED_SECONDS)

    def disable(self, channel: str) -> None:
        """Disable streams in a channel for `REFUSED_SECONDS`, as Slack refused one there."""
        self._refused[channel] = True

    def is_enabled(self, channel: str) -> bool:
        """Return whether streams in a channel are not disabled now by `disable`.

        The setting `streaming` is not considered.
        """
        return channel not in self._refused


@dataclass(frozen=True, slots=True)
class TaskCards:
    """Task cards of a stream: one for each tool call, or a placeholder until the reply has text or a tool runs.

    Attributes:
        skipped: the number of the reply's first tool calls that have no card, because an earlier message has it.
        shown: the title and Slack's status of each card in the stream; the id of a card is its position, from 1.
        is_placeholder: whether the only card shows no tool.
    """

    skipped: int = 0
    shown: tuple[tuple[str, str], ...] = ()
    is_placeholder: bool = False

    @property
    def is_final(self) -> bool:
        """True if each card is complete or failed. Slack shows others as failed when the stream has ended."""
        return all(status in _FINAL_STATUSES for _, status in self.shown)

    def update(self, plan: Plan, *, is_silent: bool) -> tuple["TaskCards", list[dict[str, Any]]]:
        """Return the cards of a plan, and the stream chunks (JSON) that show their changes.

        Args:
            is_silent: whether the message has no text yet.
        """
        cards = [_make_card(call, plan) for call in plan.tool_calls[self.skipped :]]
        is_placeholder = not cards and (is_silent or self.is_placeholder)
        if is_placeholder:
            title = f"{PLACEHOLDER}{plan.elapsed}" if is_silent else self.shown[0][0]
            cards = [(title, ToolCallState.RUNNING.value)]
        chunks = [
            {"type": "task_update", "id": str(number), "title": title, "status": status}
            for number, (title, status) in enumerate(cards, 1)
            if (title, status) not in self.shown[number - 1 : number]
        ]
        return TaskCards(self.skipped, tuple(cards), is_placeholder), chunks


def _make_card(call: ShownToolCall, plan: Plan) -> tuple[str, str]:
    title = call.line.strip("_")
    if call.state is not ToolCallState.RUNNING:
        title = title.rstrip("…")
    elif call.line == plan.status:
        title += plan.elapsed
    return escape_tokens(title)[:_TITLE_SIZE], call.state.value


@dataclass(frozen=True, slots=True)
class ReplyStream:
    """Open stream of a message, with the content that Slack has confirmed.

    Attributes:
        ts: the id of the message.
        position: the index of the message in the reply.
        ends_at: the time of the event loop at which to stop the stream.
        text: the text in the stream.
        cards: the task cards of the stream.
        size: the bytes of all chunks that were sent.
    """

    ts: str
    position: int
    ends_at: float
    text: str
    cards: TaskCards
    size: int

    def can_send(self, chunks: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether more chunks may be sent by the stream's limits of size and time."""
        return event_loop.now() < self.ends_at and self.size + _chunk_bytes(chunks) <= MAX_STREAM_BYTES


class StreamSurface(SlackSurface):
    """Surface of a reply whose growing message is streamed if possible, else edited.

    Args:
        api, queued_reactions, address, turn_id, assistant: see `SlackSurface`.
        policy: decides in which channels replies are streamed; shared by all replies.
    """

    def __init__(
        self,
        api: SlackApi,
        queued_reactions: QueuedReactions,
        address: Mapping[str, Any],
        turn_id: str,
        policy: StreamPolicy,
        *,
        assistant: AssistantThreads | None = None,
    ) -> None:
        super().__init__(api, queued_reactions, address, turn_id, assistant=assistant)
        self._policy = policy
        self._user = str(address.get("user", ""))
        self._user_team = str(address.get("user_team", ""))
        self._may_stream = bool(self._user and self._bot and self._thread_ts)
        self._is_native = False  # whether the growing message is streamed
        self._stream: ReplyStream | None = None

    def try_open(self) -> bool:
        """Return whether a message may grow: see `Surface.try_open`.

        A slot for an edit is reserved; if the message is to be streamed, also one for the call that stops the stream.
        """
        if not self._is_open and self._should_stream():
            self._open_message()  # an edit at the end removes the placeholder
            self._is_native = True
            self._tracking.enter_context(self._stop_limiter.reserve())
            self._tracking.enter_context(self._append_limiter.track_reply(self._began_at))
        return super().try_open()

    def _close_message(self) -> None:
        self._is_native = False
        super()._close_message()

    def _release_unneeded_edit(self, stream: ReplyStream) -> ReplyStream:
        """Free the reserved slot for an edit, unless the stream shows the placeholder.

        A placeholder is removed by an edit at the end.

        Returns:
            The stream, unchanged.
        """
        if not stream.cards.is_placeholder:
            self._release_reserve()
        return stream

    def _should_stream(self) -> bool:
        """Return whether to stream the next message of the reply.

        Starts and stops have small rate limits: a stream needs a free slot for its start, and one for its stop. In a
        channel, Slack shows the growing text to only one user. With `auto`, streams are therefore used only in direct
        messages and for the first prompt of a thread. Appends must also be allowed as often as edits.
        """
        if not (self._may_stream and self._policy.is_enabled(self._channel)):
            return False
        if not (self._stop_limiter.can_reserve(1) and self._start_limiter.can_reserve(1)):
            return False
        if not self._can_end_message():
            return False
        if self._policy.streaming == "native":
            return True
        has_one_reader = self._is_direct or self._prompt_ts == self._thread_ts
        return has_one_reader and self._append_limiter.calls_per_reply >= self._edit_limiter.calls_per_reply

    @property
    def _is_direct(self) -> bool:
        return self._channel.startswith("D")

    @property
    def _start_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.startStream", self._team), TIER_2)

    @property
    def _append_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.appendStream", self._team), TIER_4)

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        if self._get_next_limiter(is_post=is_post, is_last_edit=is_last_edit) in (
            self._start_limiter,
            self._stop_limiter,
        ):  # never dropped as a tick
            priority = min(priority, Priority.PROGRESS)
        await super().acquire_slot(priority, is_post=is_post, is_last_edit=is_last_edit, outdated_since=outdated_since)

    def _get_next_limiter(self, *, is_post: bool, is_last_edit: bool) -> RateLimiter:
        if self._stream is not None:
            return self._stop_limiter if is_last_edit else self._append_limiter
        if is_post and self._is_native and not is_last_edit:
            return self._start_limiter
        return super()._get_next_limiter(is_post=is_post, is_last_edit=is_last_edit)

    def _stop_streaming(self) -> None:
        """Use edits, and no streams, for the rest of the reply."""
        self._may_stream = False
        if self._is_native:
            self._switch_to_edits()

    def _switch_to_edits(self) -> None:
        """Use edits for the growing message, and reserve a slot for the last edit."""
        self._is_native = False
        self._tracking.close()
        self._reserve_final_edit()
        self._track_message()

    async def _post_planned(self, piece: PlannedMessage, previous: str | None) -> PostedMessage | None:
        if self._is_native and not piece.is_complete and self._stop_limiter.can_reserve(0):
            self._stream = await self._start(piece)
            if self._stream is not None:
                return PostedMessage(self._stream.ts, is_new=False)
            if self._is_native:
                self._switch_to_edits()
        return await super()._post_planned(piece, previous)

    async def _start(self, piece: PlannedMessage) -> ReplyStream | None:
        """Start a stream for the next message of the reply.

        After a refusal by Slack or a failure, the rest of the reply is shown by edits.

        Returns:
            The stream; None if the rate limit does not allow it now, Slack refuses it, or no stream is found after a
                failure.
        """
        if not (self.use_slot(self._start_limiter) or self._start_limiter.try_acquire(Priority.PROGRESS)):
            return None
        text = _settled_text(piece)
        ended = takewhile(lambda call: call.state is not ToolCallState.RUNNING, piece.plan.tool_calls)
        cards = TaskCards(skipped=len(list(ended)) if piece.position else 0)
        cards, chunks = cards.update(piece.plan, is_silent=not text)
        chunks += _text_chunks(text)
        # Slack: the recipient is required in channels, where only they see the text grow.
        recipient = {} if self._is_direct else {"recipient_user_id": self._user, "recipient_team_id": self._user_team}
        try:
            answer = await self._api.call_once(
                "chat.startStream",
                {
                    "channel": self._channel,
                    "thread_ts": self._thread_ts,
                    "unfurl_links": False,
                    "unfurl_media": False,
                    "chunks": chunks,
                    **recipient,
                },
                self._start_limiter,
            )
            ts = str(answer["ts"])
        except RefusedError as refusal:
            log.warning("%s; replies in this channel are edited for %g s", refusal, REFUSED_SECONDS)
            self._policy.disable(self._channel)
            ts = ""
        except TransientError as failure:
            ts = "" if failure.retry_after is not None else await self._find_started(piece.position)
        if not ts:
            self._stop_streaming()
            return None
        self._stream_positions[ts] = piece.position
        ends_at = event_loop.now() + self._policy.seconds
        return self._release_unneeded_edit(
            ReplyStream(ts, piece.position, ends_at, text=text, cards=cards, size=_chunk_bytes(chunks))
        )

    async def _find_started(self, position: int) -> str:
        """Look up the message of a stream whose start got no response.

        A message that appears later is deleted at the end of the reply.

        Args:
            position: the index of the message in the reply.

        Returns:
            The `ts` of the message; empty if the message is not found.
        """
        ts = (await self._find_own()).get(position, "")
        if not ts:
            self._has_strays = self._may_have_stray_stream = True
        return ts

    async def _edit_planned(self, message_id: str, piece: PlannedMessage) -> EditOutcome:
        stream = self._stream
        if stream is None or stream.ts != message_id:
            return await super()._edit_planned(message_id, piece)
        continues = piece.chunk.text.startswith(stream.text)
        if continues and not piece.is_complete:
            appended = await self._append(stream, piece)
            if appended is not None:
                return appended
        self._stream = None
        cards, chunks = stream.cards.update(piece.plan, is_silent=False)
        if not (continues and piece.is_complete and await self._finish(stream, piece, chunks)):
            await self._stop_stream(stream.ts)
            if continues or not piece.is_complete:  # else only the end of the text moved to the next message
                self._stop_streaming()
        elif cards.is_final:
            self._shown[message_id] = piece.content
        else:  # the text is complete: the edit that removes the cards may wait for other replies
            piece = _as_progress(piece)
        return await super()._edit_planned(
            message_id, piece if piece.plan.priority in FINAL_PRIORITIES else _as_progress(piece)
        )

    async def _append(self, stream: ReplyStream, piece: PlannedMessage) -> EditOutcome | None:
        """Append the new text and status of a message to its stream.

        Returns:
            `DONE`, or `DROPPED` if the rate limit does not allow the append. None if the stream cannot be used any
            more: it is full or too old, Slack refuses the append, or its outcome is unknown.
        """
        new = _settled_text(piece)[len(stream.text) :]
        is_silent = not (stream.text or new)
        cards, chunks = stream.cards.update(piece.plan, is_silent=is_silent)
        chunks += _text_chunks(new)
        if not stream.can_send(chunks):
            return None
        if not chunks:
            return EditOutcome.DONE
        if not (self.use_slot(self._append_limiter) or self._append_limiter.try_acquire(Priority.STREAM_UPDATE)):
            return EditOutcome.DROPPED
        try:
            await self._api.call_once(
                "chat.appendStream", {"channel": self._channel, "ts": stream.ts, "chunks": chunks}, self._append_limiter
            )
        except RefusedError as refusal:  # Slack has ended it
            log.info("%s", refusal)
            return None
        except TransientError as failure:  # the outcome is unknown, except after a rate limit
            return None if failure.retry_after is None else EditOutcome.DROPPED
        size = stream.size + _chunk_bytes(chunks)
        self._stream = self._release_unneeded_edit(replace(stream, text=stream.text + new, cards=cards, size=size))
        return EditOutcome.DONE

    async def _finish(self, stream: ReplyStream, piece: PlannedMessage, cards: Sequence[Mapping[str, Any]]) -> bool:
        """Stop a stream, and add the rest of the message's text and its buttons.

        Args:
            cards: the stream chunks that show the last changes of the task cards.

        Returns:
            True if Slack has confirmed the call. If not, the stream may still be open, and the message needs an edit.
                No call is made if the rest exceeds the stream's limits of size and time.
        """
        priority = piece.plan.priority if piece.plan.priority in FINAL_PRIORITIES else Priority.PROGRESS
        rest = [*cards, *_text_chunks(piece.chunk.text[len(stream.text) :])]
        if not stream.can_send(rest):
            return False
        if not self.use_slot(self._stop_limiter):
            await self._stop_limiter.acquire(priority)
        try:
            await self._api.call_once(
                "chat.stopStream",
                {
                    "channel": self._channel,
                    "ts": stream.ts,
                    "metadata": self._metadata(stream.position),
                    **self._stop_arguments,
                    **({"chunks": rest} if rest else {}),
                    **({"blocks": button_blocks(piece.buttons)} if piece.buttons else {}),
                },
                self._stop_limiter,
            )
        except RefusedError as refusal:
            log.info("%s", refusal)
            return False
        except TransientError:
            return False
        self._stream_positions.pop(stream.ts, None)
        return True


def _as_progress(piece: PlannedMessage) -> PlannedMessage:
    """Return a planned message with the priority `PROGRESS`, which is never dropped."""
    return replace(piece, plan=replace(piece.plan, priority=Priority.PROGRESS))


def _settled_text(piece: PlannedMessage) -> str:
    """Return the start of a message's text that will not change, and can be streamed.

    These are the first `stable_length` characters of the message's chunk. A final `<` is left out: it may begin one of
    Slack's tokens.
    """
    return piece.chunk.text[: piece.chunk.stable_length].rstrip("<")


def _text_chunks(text: str) -> list[dict[str, Any]]:
    return [{"type": "markdown_text", "text": text}] if text else []


def _chunk_bytes(chunks: Sequence[Mapping[str, Any]]) -> int:
    """Return the size of stream chunks in bytes; Slack counts tasks twice (measured)."""
    return sum(
        len(chunk["text"].encode()) if "text" in chunk else 2 * len(json.dumps(chunk, ensure_ascii=False).encode())
        for chunk in chunks
    )
