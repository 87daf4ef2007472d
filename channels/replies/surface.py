"""Surface: the place on a platform where the messages of one reply are posted, edited and deleted."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from sys import maxsize
from typing import Protocol

from channels.base import Button, File, Priority
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import RefusedError
from channels.replies.diff import Edit, Post, StreamRules
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.stream import StreamPart

#: Awaited with the name and the platform's id of a file, to store the id.
RecordFile = Callable[[str, str], Awaitable[None]]


class EditOutcome(Enum):
    """Outcome of an edit of a message.

    Attributes:
        DROPPED: the edit was a `STREAM_UPDATE` that the rate limits did not allow.
        NO_RESPONSE: the edit was a `STREAM_UPDATE` without a response; it may still take effect.
        GONE: the message is deleted, or cannot be edited any more.
    """

    DONE = auto()
    DROPPED = auto()
    NO_RESPONSE = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class PostOutcome:
    """Outcome of a post.

    Attributes:
        id: the platform's id of the message; empty if the post was a `STREAM_UPDATE` that took no effect yet.
        is_new: whether the message has the planned content. If not, an earlier call without a response posted it.
        was_lost: whether a call got no response, and may still post an extra message.
    """

    id: str
    is_new: bool = True
    was_lost: bool = False


class StreamEndedError(Exception):
    """The platform has ended a stream, or it is unknown whether a call for it took effect."""


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """Outcome of the start of a stream; `id` is empty if no message was found, `was_lost` as in `PostOutcome`."""

    id: str = ""
    is_open: bool = False
    was_lost: bool = False


class Streams(Protocol):
    """Streams of a reply's growing messages; each call uses a slot that was acquired from its limiter.

    After a `StreamEndedError`, the message can be edited once `stop` was called.
    """

    @property
    def rules(self) -> StreamRules: ...

    @property
    def start_limiter(self) -> RateLimiter: ...

    @property
    def append_limiter(self) -> RateLimiter: ...

    @property
    def stop_limiter(self) -> RateLimiter: ...

    def may_start(self) -> bool:
        """Return whether to stream the next message, by the settings and the rate limits."""
        ...

    async def start(self, position: int, part: StreamPart) -> StartOutcome: ...

    async def append(self, message_id: str, part: StreamPart) -> bool:
        """Add to a stream, or raise `StreamEndedError`; return False if the rate limits did not allow the call."""
        ...

    async def finish(self, position: int, message_id: str, part: StreamPart, buttons: Sequence[Button]) -> None:
        """Add to a stream, and stop it, or raise `StreamEndedError`."""
        ...

    async def stop(self, message_id: str) -> None:
        """Stop a stream, so that its message can be edited; a refusal is logged."""
        ...


class Surface(ABC):
    """Base of surfaces: executes single operations on the messages of a reply."""

    limits: MessageLimits
    max_messages: int = maxsize
    streams: Streams | None = None

    def __init__(self, queued_reactions: QueuedReactions, address: Address) -> None:
        self._queued_reactions = queued_reactions
        self._address = address

    @property
    @abstractmethod
    def post_limiter(self) -> RateLimiter: ...

    @property
    @abstractmethod
    def edit_limiter(self) -> RateLimiter: ...

    @contextmanager
    def show_processing(self) -> Iterator[None]:
        """Show in the `with` block, if the platform can, that the bot processes the message."""
        yield

    def filter_buttons(self, buttons: Sequence[Button]) -> Sequence[Button]:
        """Return the buttons that a message can have."""
        return buttons

    @abstractmethod
    async def post(self, operation: Post, *, previous_id: str | None = None, has_slot: bool = False) -> PostOutcome:
        """Post one message of the reply, or raise `SurfaceError`.

        Args:
            previous_id: the platform's id of the message before it in the reply; None for the first one.
            has_slot: whether a slot of `post_limiter` is acquired for the call already.
        """

    @abstractmethod
    async def edit(self, message_id: str, operation: Edit, *, has_slot: bool = False) -> EditOutcome:
        """Edit one message of the reply, or raise `SurfaceError`; see `post` for `has_slot`."""

    @abstractmethod
    async def delete(self, message_id: str) -> None:
        """Delete a message of the reply, or raise `SurfaceError`; it is no error if the message is deleted already."""

    @abstractmethod
    async def attach(self, files: Sequence[File], last_id: str, known: Mapping[str, str], record: RecordFile) -> None:
        """Show each of the reply's files once, in order, attached to or below the last message.

        Args:
            known: the ids of the already stored files by name; the platform may not show these files yet.
            record: awaited with a file's name and id before the file is shown.

        Raises:
            FileRefusedError: some files cannot be shown.
            SurfaceError: no file can be shown.
        """

    @abstractmethod
    async def detach(self, file_id: str) -> None:
        """Remove an attached file of the reply; it is no error if it is removed already."""

    @abstractmethod
    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, stops_stream: bool = False) -> list[str]:
        """Look up the reply's messages on the platform, and return their ids in order, or raise `SurfaceError`.

        Only messages that are recorded, or that the platform shows to be of this reply, are returned.

        Args:
            recorded_ids: the stored message ids. Those of ephemeral messages and Discord's side messages are returned
                unchecked.
            stops_stream: whether a former process may have started a stream whose id it did not record; it is stopped.
        """

    async def delete_strays(self, known_ids: Sequence[str]) -> None:  # noqa: B027 - by default nothing is done
        """Delete the reply's messages that `known_ids` lacks, after a post without a response; log failures."""

    @abstractmethod
    async def add_reaction(self, emoji: str) -> None:
        """React to the user's message that the reply answers, with an emoji or its short name (`tada` or `:tada:`).

        Raises:
            SurfaceError: the platform refuses the reaction or cannot be reached, or the reply is ephemeral.
        """

    async def post_message(self, text: str, file: File | None = None) -> None:
        """Post one message that is not part of the reply, such as the result of a command, or raise `SurfaceError`.

        The text is that of one message, in the platform's dialect.
        """
        message_id = await self.post_text(text)
        if file is not None:
            await self.attach([file], message_id, {}, _skip_record)

    async def post_text(self, text: str, priority: Priority = Priority.FINAL) -> str:
        """Post one message that is not part of the reply: see `post_message`; return its id on the platform."""
        return (await self.post(Post(0, priority, (text, ()), is_growing=False))).id

    async def explain_refusal(self, refusal: RefusedError) -> None:  # noqa: B027 - by default nothing is done
        """Tell the author, if the platform can, why there is no reply."""

    async def notify_author(self) -> None:  # noqa: B027 - by default nothing is done
        """Notify the author, if the platform can, that a long reply has ended."""

    def add_queued_reaction(self) -> None:
        self._queued_reactions.add(self._address)

    def mark_queued_reaction_added(self) -> None:
        """Assume that another process has added the "queued" reaction, so that it can be removed."""
        self._queued_reactions.assume_added(self._address)

    def remove_queued_reaction(self) -> None:
        self._queued_reactions.remove(self._address)


async def _skip_record(_name: str, _id: str) -> None:
    """Store no file id: a message that is not part of the reply is never edited."""
