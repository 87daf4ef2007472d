"""What a platform is to the rest of the house: a `Channel` that hears, and a `Surface` that shows."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Protocol

from aiohttp import web

from channels.markdown.dialect import Limits
from core.conversations.history_state import HistoryState
from core.errors import SurfaceError
from core.inbox_message import Attachment, InboxMessage
from core.workers.rate_limit_sharing import LimitUsages

#: Room in each message for a line under the text that says what is going on, in whatever unit.
STATUS_RESERVE = 102

#: Since when that is out of date which says nothing yet: see `Surface.ready`.
SILENT = float("-inf")

#: How much a button is to be seen, in the words of both platforms; plain by default.
Style = Literal["", "primary", "danger"]

#: Under this key an HTTP request holds when its headers arrived, in seconds of the event loop's clock.
ARRIVED_AT = web.RequestKey("arrived_at", float)

#: Awaited after each post and before the next, with the chunk's position and the new message's id. A plan's files have
#: the positions behind its last chunk.
Record = Callable[[int, str], Awaitable[None]]

#: How other people's words belong to a message: they were said before it, it replies to them, it passes them on, or it
#: is a question about them.
Kind = Literal["before", "quoted", "forwarded", "about"]


class Priority(IntEnum):
    """Which call goes first when a platform's budget is short; a `TICK` that cannot go now is dropped.

    A `LOOK` at what was said waits for as long as anybody else wants to go.
    """

    FINAL = 0
    APPROVAL = 1
    ERROR = 2
    PROGRESS = 3
    TICK = 4
    LOOK = 5


#: What is shown with these is complete.
LAST_WORDS = frozenset({Priority.FINAL, Priority.APPROVAL, Priority.ERROR})


@dataclass(frozen=True, slots=True)
class Chunk:
    """One platform message of a reply: `text` shows `full_text[start:end]`.

    Attributes:
        settled: of a message that grows: how much of `text`, from its start, will stay as it is when the message has
            grown, as far as one can tell. A cut before it, or another text in its place, still take it back.
    """

    start: int
    end: int
    text: str
    settled: int = 0


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press under a reply.

    Attributes:
        id: what a press is known by, whoever hears it and however late (`retry:TURN`).
        label: what people read on it, or have read to them.
    """

    id: str
    label: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file that belongs to a reply.

    Attributes:
        name: no other file of the reply's has it.
        alt: what it shows, in words, for those who do not see it.
    """

    name: str
    data: bytes
    alt: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The messages that a reply should consist of, in order.

    Attributes:
        controls: the buttons under the last of them.
        files: what comes with the last of them.
        grows: whether the last of them is to grow; else none of them changes any more, as far as one can tell.
        status: what goes on while no text comes, as the last chunk says it below its text.
        waited: for how long that has been so, as the last chunk says it.
    """

    chunks: Sequence[Chunk]
    priority: Priority
    controls: Sequence[Button] = ()
    files: Sequence[File] = ()
    grows: bool = False
    status: str = ""
    waited: str = ""


class FileRefusedError(SurfaceError):
    """The messages of a plan are shown, and some of its files cannot be.

    Attributes:
        names: of these.
    """

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = tuple(names)


class EditRefusedError(SurfaceError):
    """A message that grows stands as it was: the platform refuses what it is to say now."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the model reads.

    Attributes:
        speaker: the name of who wrote it.
        is_alone: whether nobody else can write there, so that it need not be told who did.
        bot_name: the bot's own name on the platform; empty if it is not known.
    """

    text: str
    speaker: str
    is_alone: bool = True
    bot_name: str = ""

    @classmethod
    def of(
        cls, said: str, speaker: str, attachments: Sequence[Attachment], *, alone: bool, bot_name: str = ""
    ) -> "Heard":
        """Return the text of a message; attachments are described elsewhere."""
        said = said or ("" if attachments else f"[{speaker} called you without saying anything]")
        return cls(said, speaker, alone, bot_name)


@dataclass(frozen=True, slots=True)
class Said:
    """A message of somebody which is there to be known, and not to be answered.

    Attributes:
        author: the platform's id of who wrote it.
        name: his.
        text: in words.
        at: when, in seconds since the epoch.
        kind: how it belongs to what is answered.
        to: the event key of the message that it belongs to; empty if it was only said before.
        opens: whether it is what its thread is about.
    """

    author: str
    name: str
    text: str
    at: float
    kind: Kind = "before"
    to: str = ""
    opens: bool = False


@dataclass(frozen=True, slots=True)
class Around:
    """What was said around the messages of a turn.

    Attributes:
        said: oldest first, as it stands now.
        names: of others who take part, by their ids.
    """

    said: Sequence[Said] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class Surface(Protocol):
    """The place where one reply is shown."""

    @property
    def limits(self) -> Limits: ...

    def live(self) -> AbstractContextManager[None]:
        """To be entered while the reply is being shown."""
        ...

    def open(self) -> bool:
        """Whether a message may be shown that is to grow. It will have to be ended by a call, which is kept back from
        then on until it is.
        """
        ...

    async def ready(self, priority: Priority, *, is_new: bool, ends: bool, since: float) -> None:
        """Wait until the platform's limits allow the next call, and keep its place for `show`. What waits is the
        wish to show something, and not the text: who has waited shows the newest. Cancelled, it keeps none.

        Args:
            is_new: whether it is to post a message.
            ends: whether the message that grows is to grow no more.
            since: the loop's time since which what is shown is out of date; `SILENT`, if the reply has words by now
                and shows none: they go with the next call that is not kept back for others.
        """
        ...

    async def show(self, plan: Plan, known: Sequence[str], record: Record) -> bool:
        """Make the platform show exactly `plan`.

        `known` are the ids of the reply's messages as far as they stand, and of its files: they are edited where
        they differ, what is missing is posted, what is left over is deleted. Safe to repeat.

        Returns:
            Whether all of it is shown now; of a `TICK`, what finds no place in the budget is dropped.

        Raises:
            FileRefusedError: all but some files is shown.
            EditRefusedError: the reply may have its end all the same.
            SurfaceError: it cannot be shown.
        """
        ...

    async def find(self, recorded: Sequence[str] = (), *, is_taken_over: bool = False) -> list[str]:
        """Return the ids of the reply's messages on the platform, in order.

        Args:
            recorded: the ids that are stored; the platform may know nothing of files.
            is_taken_over: whether calls of another process may still take effect. Their effects are undone when the
                final text is shown.

        Raises:
            SurfaceError: the messages cannot be fetched.
        """
        ...

    async def clear(self, message_ids: Sequence[str]) -> None:
        """Delete messages that are posted and are not part of the reply.

        Raises:
            SurfaceError: they cannot be.
        """
        ...

    async def say(self, text: str, file: File | None = None) -> None:
        """Post one message that is no turn's reply, with a file.

        Raises:
            SurfaceError: it cannot be shown.
        """
        ...

    def waits(self) -> None:
        """Give the message the sign that it was heard and waits, if it bears none."""
        ...

    def waited(self) -> None:
        """The message may bear that sign, given by another process."""
        ...

    async def begun(self) -> None:
        """Take back the sign that the message waits, if it bears one."""
        ...


class Check(Protocol):
    """Whether a file is to be read, as far as is known of it.

    Attributes:
        most: of how many bytes it may be.
    """

    @property
    def most(self) -> int: ...

    def __call__(self, file: Attachment) -> None:
        """Let it pass.

        Raises:
            UnreadableFileError: it is not to be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that was read.

    Attributes:
        file: what is known of it now.
    """

    file: Attachment
    data: bytes


class RateLimits(Protocol):
    """The rate limits of a platform, divided among the workers."""

    @property
    def headroom(self) -> float:
        """The part that is free, at least, of each limit: from 0 to 1."""
        ...

    def announce_usage(self) -> LimitUsages:
        """Return what the other workers are told of this one's usage."""
        ...

    def share(self, others: Sequence[LimitUsages]) -> None:
        """Divide the limits with other workers, by what each of them has announced."""
        ...


class Channel(Protocol):
    """A platform's adapter.

    Attributes:
        pulse: seconds within which there is a sign of life of the platform, whether anything is said or not.
    """

    @property
    def name(self) -> str: ...

    @property
    def pulse(self) -> float: ...

    @property
    def limiters(self) -> RateLimits: ...

    async def start(self) -> None:
        """Connect and hear; returns when it does.

        Raises:
            SettingsError: the platform refuses the credentials.
        """
        ...

    async def stop(self) -> None:
        """Hear nothing more; replies may still be shown."""
        ...

    def heard_at(self) -> float:
        """The time of the last sign of life, in seconds since the epoch; 0 before the first."""
        ...

    async def reconnect(self) -> None:
        """Give up the connection for dead, and have a new one made; returns when that has begun."""
        ...

    def surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        """Where an answer to a message with this address is shown.

        Args:
            turn_id: what the reply's messages can be found by when their ids were lost.
        """
        ...

    def apart(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """The address of a message that stands below a reply and is none of its own.

        Args:
            name: what it can be found by: the end of the ids of its buttons, and the `turn_id` of its surface.
        """
        ...

    def below(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        """The address of what is said on a message that stands apart, with this id."""
        ...

    async def locale(self, inbound: InboxMessage) -> str:
        """The language of who wrote it, as the platform names it (`ko-KR`); empty if it does not tell."""
        ...

    async def read(self, inbound: InboxMessage) -> Heard:
        """The message in words: names where the platform has ids."""
        ...

    async def fetch(self, inbound: InboxMessage, file: Attachment, check: Check) -> Fetched:
        """A file that came with a message.

        Args:
            check: to be asked again when more is known of it.

        Raises:
            UnreadableFileError: it cannot be had, or is not to be read.
        """
        ...

    async def around(self, messages: Sequence[InboxMessage], behind: HistoryState | None) -> Around:
        """What was said around the messages that a turn answers: what they quote and pass on and, in a thread, what
        others than the bot have said up to the newest of them and the history does not hold.

        Args:
            behind: what the history holds; none where nobody else can have said anything.

        Raises:
            SurfaceError: it cannot be looked up.
        """
        ...
