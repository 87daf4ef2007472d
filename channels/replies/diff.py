"""Difference between the plan of a reply and what the platform shows, as operations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from channels.base import Button, Plan, Priority, ToolCallState
from channels.replies.stream import MessageStream, StreamPart, TaskCards
from core.turns.turn import FILE_PREFIX

#: The text and the buttons of a message.
Content = tuple[str, tuple[Button, ...]]


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """Message of a reply on the platform.

    Attributes:
        content: None if it is unknown, such as after a call without a response.
        late_until: the time of the event loop until which a call without a response may still take effect.
        has_open_cards: whether the message shows cards of a stream that are not complete; an edit removes them.
    """

    id: str
    content: Content | None = None
    late_until: float = 0.0
    stream: MessageStream | None = None
    has_open_cards: bool = False


@dataclass(frozen=True, slots=True)
class ShownReply:
    """Reply as the platform shows it, as far as that is known.

    Attributes:
        messages: by position in the plan; None for one that is deleted.
        files: the names and the platform's ids of the files.
        attachment: the id of the message with the files, then their names, once they all are shown.
        may_stream: False after a stream failed.
        refuses_edits: whether the platform refused an edit of the growing reply: only the final text is tried then.
        is_post_lost: whether the last post got no response: the next one may return its message.
        strays_until: the time of the event loop until which a lost post may appear as an extra message; 0 for none.
    """

    messages: tuple[ShownMessage | None, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    attachment: tuple[str, ...] = ()
    may_stream: bool = True
    refuses_edits: bool = False
    is_post_lost: bool = False
    strays_until: float = 0.0

    @classmethod
    def from_ids(cls, ids: Sequence[str]) -> "ShownReply":
        """Return what a former process has shown, from the `stored_ids`."""
        messages = tuple(ShownMessage(id_) for id_ in ids if not id_.startswith(FILE_PREFIX))
        return cls(messages, tuple(_parse_file_entry(id_) for id_ in ids if id_.startswith(FILE_PREFIX)))

    @property
    def message_ids(self) -> list[str]:
        return [message.id for message in self.messages if message is not None]

    @property
    def stored_ids(self) -> list[str]:
        """The ids of the messages, then the text `file:ID:NAME` for each file."""
        return [*self.message_ids, *(f"{file_prefix(id_)}{name}" for name, id_ in self.files)]

    def get_message(self, position: int) -> ShownMessage | None:
        return self.messages[position] if position < len(self.messages) else None

    def get_previous_id(self, position: int) -> str | None:
        return next((message.id for message in reversed(self.messages[:position]) if message is not None), None)

    def with_message(self, position: int, message: ShownMessage | None) -> "ShownReply":
        messages = [*self.messages, *[None] * (position + 1 - len(self.messages))]
        messages[position] = message
        while messages and messages[-1] is None:
            messages.pop()
        return replace(self, messages=tuple(messages))


@dataclass(frozen=True, slots=True)
class StreamRules:
    """Limits of a platform's streams: they are stopped after `seconds`, and `measure` counts towards `max_size`."""

    seconds: float
    max_size: int
    measure: Callable[[StreamPart], int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Snapshot of what the rate limits allow.

    Attributes:
        now: the time of the event loop.
        may_grow: whether the call that ends a growing message has a slot.
        may_stream: whether a stream may be started, and the call that stops it has a slot.
    """

    now: float
    may_grow: bool = True
    may_stream: bool = False
    stream_rules: StreamRules | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation on the message with an index in the plan; the priority is that of its wait for a slot."""

    position: int
    priority: Priority


@dataclass(frozen=True, slots=True)
class Post(Operation):
    content: Content
    is_growing: bool


@dataclass(frozen=True, slots=True)
class Edit(Operation):
    """Edit of a message, not before a time of the event loop."""

    content: Content
    is_growing: bool
    not_before: float


@dataclass(frozen=True, slots=True)
class StreamOperation(Operation):
    """Operation that adds to a stream, after which it has these cards."""

    part: StreamPart
    cards: TaskCards


class StartStream(StreamOperation):
    """Start of a stream, which posts its message."""


class AppendStream(StreamOperation):
    """Addition to an open stream."""


@dataclass(frozen=True, slots=True)
class FinishStream(StreamOperation):
    """Stop of a stream with the rest of its text, after which the message shows `content`."""

    content: Content


@dataclass(frozen=True, slots=True)
class StopStream(Operation):
    """Stop of a stream whose message is edited then; with `ends_streaming`, edits show the rest of the reply."""

    ends_streaming: bool


@dataclass(frozen=True, slots=True)
class Delete(Operation):
    pass


@dataclass(frozen=True, slots=True)
class DeleteStrays(Operation):
    """Deletion of the reply's messages that are not known, not before a time of the event loop."""

    not_before: float


@dataclass(frozen=True, slots=True)
class Detach(Operation):
    file_id: str


@dataclass(frozen=True, slots=True)
class Attach(Operation):
    """Attachment of all files of the plan to its last message, whose index is `position`."""


def diff(plan: Plan, shown: ShownReply, limits: Limits) -> Iterator[Operation]:
    """Yield the operations after which the platform shows a plan, in order.

    They end early where the rate limits do not allow a message to grow. The outcome of an operation may differ from the
    expected one: the caller executes the first, and then computes the difference anew.
    """
    if shown.refuses_edits and not plan.is_final:
        return
    for position in range(len(plan.chunks)):
        message = shown.get_message(position)
        if message is None:
            operation = _add_message(plan, position, shown, limits)
            if operation is None:
                return
            yield operation
        elif message.stream is not None:
            yield from _continue_stream(plan, position, message.stream, limits)
        elif message.content != _get_content(plan, position):
            yield _edit(plan, position, message)
        elif message.has_open_cards:  # the text is complete: the edit may wait for other replies
            yield replace(_edit(plan, position, message), priority=Priority.PROGRESS)
    for position in range(len(plan.chunks), len(shown.messages)):
        if shown.messages[position] is not None:
            yield Delete(position, Priority.PROGRESS)
    yield from _update_files(plan, shown)
    if plan.is_final and shown.strays_until:
        yield DeleteStrays(0, Priority.PROGRESS, shown.strays_until)


def _add_message(plan: Plan, position: int, shown: ShownReply, limits: Limits) -> Operation | None:
    if _is_complete(plan, position):
        return Post(position, _get_priority(plan), _get_content(plan, position), is_growing=False)
    if limits.may_stream and shown.may_stream:
        return _start_stream(plan, position)
    if not limits.may_grow:
        return None
    priority = plan.priority if position else Priority.PROGRESS
    return Post(position, priority, _get_content(plan, position), is_growing=True)


def _edit(plan: Plan, position: int, message: ShownMessage) -> Edit:
    """Return the edit of a message to its planned content.

    Only an edit of a growing message may be dropped: not that of a stopped stream, or of a former process.
    """
    is_growing = not _is_complete(plan, position)
    is_tick = is_growing and (message.content is not None or message.late_until > 0)
    priority = plan.priority if is_tick else _get_priority(plan)
    return Edit(position, priority, _get_content(plan, position), is_growing, message.late_until)


def _start_stream(plan: Plan, position: int) -> StartStream:
    text = _get_settled_text(plan, position)
    ended = takewhile(lambda call: call.state is not ToolCallState.RUNNING, plan.tool_calls)
    before = TaskCards(skipped=len(list(ended)) if position else 0)
    cards = before.update(plan, is_silent=not text)
    return StartStream(position, Priority.PROGRESS, StreamPart(cards.get_changes(before), text), cards)


def _continue_stream(plan: Plan, position: int, stream: MessageStream, limits: Limits) -> Iterator[Operation]:
    content = _get_content(plan, position)
    is_complete = _is_complete(plan, position)
    text = content[0] if is_complete else _get_settled_text(plan, position)
    continues = content[0].startswith(stream.text)
    new_text = text[len(stream.text) :]
    cards = stream.cards.update(plan, is_silent=not (is_complete or stream.text or new_text))
    part = StreamPart(cards.get_changes(stream.cards), new_text)
    if not (continues and _has_room(stream, part, limits)):
        # if only the end of the text moved to the next message, that may be streamed
        yield StopStream(position, Priority.PROGRESS, ends_streaming=continues or not is_complete)
    elif is_complete:
        yield FinishStream(position, _get_priority(plan), part, cards, content)
    elif part:
        yield AppendStream(position, plan.priority, part, cards)


def _has_room(stream: MessageStream, part: StreamPart, limits: Limits) -> bool:
    rules = limits.stream_rules
    if rules is None or stream.is_broken or limits.now >= stream.ends_at:
        return False
    return stream.size + rules.measure(part) <= rules.max_size


def _update_files(plan: Plan, shown: ShownReply) -> Iterator[Operation]:
    last = len(plan.chunks) - 1
    names = tuple(file.name for file in plan.files)
    kept = {id_ for name, id_ in shown.files if name in names}
    for id_ in sorted({id_ for _, id_ in shown.files} - kept):
        yield Detach(last, Priority.PROGRESS, id_)
    message = shown.get_message(last)
    if names and message is not None and shown.attachment != (message.id, *names):
        yield Attach(last, plan.priority)


def _is_complete(plan: Plan, position: int) -> bool:
    """Return whether no later text will change a message."""
    return not plan.is_growing or position < len(plan.chunks) - 1


def _get_content(plan: Plan, position: int) -> Content:
    is_last = position == len(plan.chunks) - 1
    return plan.chunks[position].text, tuple(plan.buttons) if is_last else ()


def _get_settled_text(plan: Plan, position: int) -> str:
    """Return the start of a message's text that will not change; a final `<` may begin one of Slack's tokens."""
    chunk = plan.chunks[position]
    return chunk.text[: chunk.stable_length].rstrip("<")


def _get_priority(plan: Plan) -> Priority:
    """Return the priority of an operation that is never dropped."""
    return plan.priority if plan.is_final else Priority.PROGRESS


def file_prefix(id_: str) -> str:
    """Return `file:ID:`, the start of a file's entry among a reply's stored ids."""
    return f"{FILE_PREFIX}{id_}:"


def _parse_file_entry(entry: str) -> tuple[str, str]:
    id_, _, name = entry.removeprefix(FILE_PREFIX).partition(":")
    return name, id_
