"""Base of the surfaces that post, edit and delete messages until they show a plan."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from channels.base import (
    FINAL_PRIORITIES,
    Button,
    Chunk,
    EditRefusedError,
    File,
    FileRefusedError,
    Plan,
    Priority,
    RecordMessageId,
)
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.caller import RefusedError
from channels.rate_limits.limiter import RateLimiter
from channels.replies.reactions import Address, QueuedReactions
from core.concurrency import event_loop
from core.errors import SurfaceError
from core.turns.turn import FILE_PREFIX

log = logging.getLogger(__name__)

#: Seconds within which a call without a response, or a call of another process, may still take effect.
LATE_CALL_SECONDS = 1.0

#: Awaited with the name and the platform's id of a file, to store the id.
RecordFile = Callable[[str, str], Awaitable[None]]


class EditOutcome(Enum):
    """Outcome of an edit of a message.

    Attributes:
        DONE: the message shows the new content.
        DROPPED: the edit was a `STREAM_UPDATE` that the rate limits did not allow.
        NO_RESPONSE: the edit was a `STREAM_UPDATE` without a response; it may still take effect.
        GONE: the message is deleted, or cannot be edited any more.
    """

    DONE = auto()
    DROPPED = auto()
    NO_RESPONSE = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """One message of a reply: the chunk `plan.chunks[position]`, with its buttons."""

    position: int
    plan: Plan

    @property
    def chunk(self) -> Chunk:
        return self.plan.chunks[self.position]

    @property
    def buttons(self) -> tuple[Button, ...]:
        """The buttons of the plan if this is its last message; else empty."""
        return tuple(self.plan.buttons) if self.position == len(self.plan.chunks) - 1 else ()

    @property
    def content(self) -> tuple[str, tuple[Button, ...]]:
        """The text and the buttons, to compare with those that the platform shows."""
        return self.chunk.text, self.buttons

    @property
    def is_complete(self) -> bool:
        """True if no later text will change the message."""
        return not self.plan.is_growing or self.position < len(self.plan.chunks) - 1


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """Result of a post: the message on the platform.

    Attributes:
        id: the platform's id of the message.
        is_new: whether the message has the planned content. If not, an earlier call whose response was lost posted it,
            and it may have less text.
    """

    id: str
    is_new: bool = True


class MessageSurface(ABC):
    """Base of surfaces: decides which messages to edit, post and delete for a plan.

    A subclass makes the platform's calls.

    Args:
        queued_reactions: adds and removes the reactions that mark users' messages as waiting.
        address: the place of the reply: see `InboxMessage.address`.
    """

    limits: MessageLimits

    def __init__(self, queued_reactions: QueuedReactions, address: Address) -> None:
        self._queued_reactions = queued_reactions
        self._address = address
        self._shown: dict[str, tuple[str, tuple[Button, ...]]] = {}
        self._to_rewrite = set[str]()  # messages whose edits may take effect late
        self._has_strays = False  # whether there may be messages that are not known here
        self._attached: tuple[str, ...] = ()  # the message with the files, and their names
        self._blocked_limiter: RateLimiter | None = None  # the limiter that refused the post of the last update
        self._slot: RateLimiter | None = None  # the limiter with a slot for the next call
        self._began_at = 0.0
        self._tracking = ExitStack()
        self._is_open = False
        self._reserve = ExitStack()
        self._is_reserved = False

    @contextmanager
    def track_reply(self) -> Iterator[None]:
        self._began_at = event_loop.now()
        try:
            yield
        finally:
            self._close_message()
            self._release_reserve()
            self._release_slot()

    def try_open(self) -> bool:
        if not self._is_open:
            if not self._can_end_message():
                self._release_reserve()
                return False
            self._open_message()
            self._track_message()
        return True

    def _open_message(self) -> None:
        self._is_open = True
        self._reserve_final_edit()

    def _reserve_final_edit(self) -> None:
        """Reserve a slot of the rate limit of edits for the edit that ends the message.

        Does nothing if a slot is reserved already. It does not check that one is free: see `_can_end_message`.
        """
        if not self._is_reserved:
            self._is_reserved = True
            self._reserve.enter_context(self._edit_limiter.reserve())

    def _release_reserve(self) -> None:
        """Free the slot that `_reserve_final_edit` reserved, if any."""
        self._is_reserved = False
        self._reserve.close()

    def _can_end_message(self) -> bool:
        """Return whether the rate limit has a slot for the edit that ends a message."""
        return self._edit_limiter.can_reserve(0 if self._is_reserved else 1)

    def _track_message(self) -> None:
        """Count a growing message among those that share the rate limit of edits.

        A message is growing while later text of the reply will be added to it. `_close_message` ends the count.
        """
        self._tracking.enter_context(self._edit_limiter.track_reply(self._began_at))

    def _close_message(self) -> None:
        """Stop counting the growing message among those that share the rate limits.

        The slot that is reserved for a last edit stays reserved, for the next growing message.
        """
        self._is_open = False
        self._tracking.close()

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        limiter = self._blocked_limiter or self._get_next_limiter(is_post=is_post, is_last_edit=is_last_edit)
        await limiter.acquire(priority, outdated_since)
        self._slot = limiter

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """Make the platform show exactly a plan: see `Surface.show`."""
        self._blocked_limiter = None
        try:
            is_shown = await self._show(plan, known_ids, record)
        finally:
            self._release_slot()
        if is_shown and not plan.is_growing:
            self._close_message()
        return is_shown

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        ids = await self._find_own()
        if is_contested:
            self._to_rewrite.update(ids.values())
            self._has_strays = True
        return [*(ids[position] for position in sorted(ids)), *filter(_is_file, recorded_ids)]

    async def delete_messages(self, message_ids: Sequence[str]) -> None:
        for message_id in message_ids:
            if not _is_file(message_id):
                await _delete_leftover(self._delete, message_id)

    @abstractmethod
    async def add_reaction(self, emoji: str) -> None:
        """React to the message that the reply answers: see `Surface.add_reaction`."""

    async def post_message(self, text: str, file: File | None = None) -> None:
        message_id = await self.post_text(text)
        if file is not None:
            await self._attach([file], message_id, {}, _skip_record)

    async def post_text(self, text: str) -> str:
        """Post a message that is not part of the reply, such as the result of a command.

        Args:
            text: the text of one message, in the platform's dialect.

        Returns:
            The platform's id of the message.

        Raises:
            SurfaceError: the message cannot be posted.
        """
        posted = await self._post(0, text, (), Priority.FINAL, None)
        assert posted is not None, "only a stream update may be dropped"
        return posted.id

    def add_queued_reaction(self) -> None:
        self._queued_reactions.add(self._address)

    def mark_queued_reaction_added(self) -> None:
        self._queued_reactions.assume_added(self._address)

    async def remove_queued_reaction(self) -> None:
        self._queued_reactions.remove(self._address)

    def use_slot(self, limiter: RateLimiter) -> bool:
        """Use the slot that `acquire_slot` acquired for the next platform call.

        Args:
            limiter: the rate limiter of that call.

        Returns:
            True if the slot is one of this limiter; it is then used up. If False, the caller acquires a slot itself.
        """
        if self._slot is not limiter:
            return False
        self._slot = None
        return True

    @property
    @abstractmethod
    def _post_limiter(self) -> RateLimiter:
        """The rate limiter for posts in the reply's channel."""

    @property
    @abstractmethod
    def _edit_limiter(self) -> RateLimiter:
        """The rate limiter for edits in the reply's channel."""

    def _get_next_limiter(self, *, is_post: bool, is_last_edit: bool) -> RateLimiter:
        """Return the rate limiter for the next call: see `Surface.acquire_slot`.

        It is `_post_limiter` if `is_post`, else `_edit_limiter`. Only subclasses use `is_last_edit`.
        """
        del is_last_edit
        return self._post_limiter if is_post else self._edit_limiter

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    async def _show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """Edit, post and delete messages, then attach the files: see `Surface.show`."""
        messages = [id_ for id_ in known_ids if not _is_file(id_)]
        shown_ids: list[str] = []
        for position in range(len(plan.chunks)):
            piece = PlannedMessage(position, plan)
            current_id = messages[position] if position < len(messages) else None
            while current_id is None or (outcome := await self._edit_planned(current_id, piece)) is EditOutcome.GONE:
                posted = await self._post_planned(piece, shown_ids[-1] if shown_ids else None)
                if posted is None:
                    self._blocked_limiter = self._post_limiter
                    return False
                current_id = posted.id
                if posted.is_new:
                    self._shown[current_id] = piece.content
                await record(position, current_id)
            if outcome in (EditOutcome.DROPPED, EditOutcome.NO_RESPONSE):
                return False
            shown_ids.append(current_id)
        for message_id in messages[len(plan.chunks) :]:
            await _delete_leftover(self._delete, message_id)
        if plan.priority in FINAL_PRIORITIES:
            await self._undo_late_calls(
                [PlannedMessage(position, plan) for position in range(len(shown_ids))], shown_ids
            )
        await self._show_files(plan, shown_ids[-1] if shown_ids else "", known_ids, record)
        return True

    async def _undo_late_calls(self, pieces: Sequence[PlannedMessage], shown_ids: Sequence[str]) -> None:
        """Undo the effects of late calls: edit messages again, and delete extra ones.

        Late calls are those without a response, and those of a worker that ran the turn before. If there may be any,
        wait `LATE_CALL_SECONDS` for them to take effect first.

        Args:
            pieces: the messages of the final plan.
            shown_ids: the platform's ids of the messages, in the same order.
        """
        if self._to_rewrite.isdisjoint(shown_ids) and not self._has_strays:
            return
        await asyncio.sleep(LATE_CALL_SECONDS)
        for piece, message_id in zip(pieces, shown_ids, strict=True):
            if message_id in self._to_rewrite:
                await self._edit(message_id, *piece.content, Priority.PROGRESS)
        if self._has_strays:
            await self.delete_messages(await self._find_strays(shown_ids))
        self._to_rewrite.clear()
        self._has_strays = False

    async def _edit_planned(self, message_id: str, piece: PlannedMessage) -> EditOutcome:
        """Edit a message to its planned content, unless it has that content already.

        Returns:
            The outcome of the edit; `DONE` if the message has the content already. A message whose outcome is
            `NO_RESPONSE` is edited again by `_undo_late_calls`.

        Raises:
            EditRefusedError: the platform refuses an edit of a growing message.
            RefusedError: the platform refuses the final text.
        """
        if self._shown.get(message_id) == piece.content:
            return EditOutcome.DONE
        try:
            outcome = await self._edit(message_id, *piece.content, piece.plan.priority)
        except RefusedError as refusal:
            if piece.plan.priority in FINAL_PRIORITIES:
                raise
            raise EditRefusedError(str(refusal)) from refusal
        if outcome is EditOutcome.DONE:
            self._shown[message_id] = piece.content
        if outcome is EditOutcome.NO_RESPONSE:
            self._to_rewrite.add(message_id)
        return outcome

    async def _post_planned(self, piece: PlannedMessage, previous: str | None) -> PostedMessage | None:
        """Post a message of a plan, with the priority of the plan.

        A `STREAM_UPDATE` uses the slot of `acquire_slot`, or one that is free now. With any other priority, the post
        waits for a slot, and is retried.

        Args:
            previous: the platform's id of the message before it in the reply; None for the first one.

        Returns:
            The message; None for a `STREAM_UPDATE` that was dropped. It is dropped if no slot is free or the platform
            responds with 429, and if a call without a response did not take effect.
        """
        return await self._post(piece.position, *piece.content, piece.plan.priority, previous)

    async def _show_files(self, plan: Plan, last_id: str, known_ids: Sequence[str], record: RecordMessageId) -> None:
        """Attach the plan's files to its last message, and remove the reply's other files.

        Args:
            last_id: the platform's id of the last message; if empty, no file is attached.
            known_ids: the stored message ids of the reply, with the entries of its files.
            record: awaited with the position in the plan and the entry (see `_file_entry`) of each file.

        Raises:
            FileRefusedError: some files cannot be attached.
        """
        positions = {file.name: len(plan.chunks) + number for number, file in enumerate(plan.files)}
        recorded = dict(_parse_file_entry(id_) for id_ in known_ids if _is_file(id_))
        known_files = {name: id_ for name, id_ in recorded.items() if name in positions}
        for id_ in sorted(set(recorded.values()) - set(known_files.values())):
            await _delete_leftover(self._detach, id_)
        if not (plan.files and last_id):
            return
        for name, id_ in known_files.items():
            entry, position = _file_entry(name, id_), positions[name]
            if known_ids[position : position + 1] != [entry]:
                await record(position, entry)
        if self._attached == (last_id, *positions):
            return
        try:
            await self._attach(
                plan.files, last_id, known_files, lambda name, id_: record(positions[name], _file_entry(name, id_))
            )
        except FileRefusedError:
            raise
        except SurfaceError as error:
            raise FileRefusedError(str(error), list(positions)) from error
        self._attached = (last_id, *positions)

    @abstractmethod
    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        """Post one message of the reply.

        Args:
            position: the index of the message in the plan.
            previous: the platform's id of the message before it in the reply; None for the first one.

        Returns:
            The message; None if the rate limits do not allow a `STREAM_UPDATE` now.

        Raises:
            SurfaceError: the message cannot be posted.
        """

    @abstractmethod
    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome: ...

    @abstractmethod
    async def _delete(self, message_id: str) -> None:
        """Delete a message of the reply; it is no error if the message is deleted already."""

    @abstractmethod
    async def _attach(self, files: Sequence[File], last: str, known: Mapping[str, str], record: RecordFile) -> None:
        """Show each of the files once, in order, attached to or below the last message.

        Args:
            files: all files of the reply.
            last: the platform's id of the reply's last message.
            known: the ids of the already stored files by name; the platform may not show these files yet.
            record: awaited with a file's name and id before the file is shown.

        Raises:
            FileRefusedError: some files cannot be shown.
            SurfaceError: no file can be shown.
        """

    @abstractmethod
    async def _detach(self, file_id: str) -> None:
        """Remove an attached file of the reply; it is no error if it is removed already."""

    async def _find_strays(self, shown_ids: Sequence[str]) -> Sequence[str]:
        """Look up the reply's messages on the platform that `shown_ids` lacks.

        Such a message comes from another process, or from a call that timed out and took effect later. By default none
        is looked up.

        Args:
            shown_ids: the platform's ids of the messages that show the final plan.

        Returns:
            The platform's ids of the extra messages.
        """
        del shown_ids
        return ()

    @abstractmethod
    async def _find_own(self) -> dict[int, str]:
        """Look up the reply's messages on the platform.

        Returns:
            The platform's ids of the messages, by the index of the message in the reply.
        """


async def _delete_leftover(delete: Callable[[str], Awaitable[None]], id_: str) -> None:
    """Delete a message or file that is not part of the plan.

    A refusal by the platform is logged, and the message or file stays.

    Args:
        delete: deletes the message or file with an id on the platform.
        id_: the platform's id of the message or file.
    """
    try:
        await delete(id_)
    except RefusedError as refusal:
        log.error("a message or file beside a reply cannot be deleted: %s", refusal)


async def _skip_record(_name: str, _id: str) -> None:
    """Store no file id: a message that is not part of the reply is never edited."""


def _is_file(id_: str) -> bool:
    return id_.startswith(FILE_PREFIX)


def _file_entry(name: str, id_: str) -> str:
    """Return the text `file:ID:NAME`, which stores a file among a reply's message ids."""
    return f"{file_prefix(id_)}{name}"


def file_prefix(id_: str) -> str:
    """Return `file:ID:`, the start of a file's entry among a reply's message ids."""
    return f"{FILE_PREFIX}{id_}:"


def _parse_file_entry(entry: str) -> tuple[str, str]:
    """Return the name and the id of a file from the text `file:ID:NAME`."""
    id_, _, name = entry.removeprefix(FILE_PREFIX).partition(":")
    return name, id_
