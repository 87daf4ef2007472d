"""A reply as messages that are posted, edited and deleted until they are what they should be."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from channels.channel import LAST_WORDS, Chunk, Limits, Plan, Priority, Record
from channels.pacer import Budget


class Edited(Enum):
    """What became of an edit.

    Attributes:
        DONE: the message says it now.
        DROPPED: a tick that could not go.
        GONE: the message is not there any more, or may not be edited any more.
    """

    DONE = auto()
    DROPPED = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of a plan: the one at this position."""

    position: int
    plan: Plan

    @property
    def chunk(self) -> Chunk:
        return self.plan.chunks[self.position]

    @property
    def is_done(self) -> bool:
        """Whether nothing is to come that would change it."""
        return self.plan.priority in LAST_WORDS or self.position < len(self.plan.chunks) - 1


@dataclass(frozen=True, slots=True)
class Posted:
    """A message that stands.

    Attributes:
        is_new: whether it says what was to be posted. Otherwise it was posted before, when the answer to that was
            lost, and may say less.
    """

    id: str
    is_new: bool = True


class MessageSurface(ABC):
    """A `Surface` of a platform on which a message, once posted, can be edited and deleted.

    How a message is posted, edited, deleted and found again is up to the platform's own class.
    """

    limits: Limits

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._lacking: Budget | None = None  # that had no place for a post of the last tick
        self._held: Budget | None = None  # in which the next call has its place

    @contextmanager
    def live(self) -> Iterator[None]:
        try:
            with self._edits.live():
                yield
        finally:
            self._release()

    async def ready(self, priority: Priority, *, is_new: bool, since: float) -> None:
        budget = self._lacking or self._next(priority, is_new=is_new)
        await budget.admit(priority, since)
        self._held = budget

    async def show(self, plan: Plan, known: Sequence[str], record: Record) -> bool:
        """Edit, post and delete until the platform shows the plan: see `Surface`."""
        self._lacking = None
        try:
            return await self._show(plan, known, record)
        finally:
            self._release()

    async def find(self) -> list[str]:
        own = await self._own()
        return [own[position] for position in sorted(own)]

    async def say(self, text: str) -> None:
        await self._post(0, text, Priority.FINAL, None)

    @abstractmethod
    async def begun(self) -> None: ...

    def is_admitted(self, budget: Budget) -> bool:
        """Whether the next call has its place in `budget`; it has it once."""
        if self._held is not budget:
            return False
        self._held = None
        return True

    @property
    @abstractmethod
    def _posts(self) -> Budget:
        """What posting a message is limited by."""

    @property
    @abstractmethod
    def _edits(self) -> Budget:
        """What editing a message is limited by."""

    def _next(self, priority: Priority, *, is_new: bool) -> Budget:
        """The budget of the call that comes next."""
        del priority
        return self._posts if is_new else self._edits

    def _release(self) -> None:
        if self._held is not None:
            self._held.give_back()
            self._held = None

    async def _show(self, plan: Plan, known: Sequence[str], record: Record) -> bool:
        previous: str | None = None
        for position in range(len(plan.chunks)):
            piece = Piece(position, plan)
            current = known[position] if position < len(known) else None
            while current is None or (edited := await self._change(current, piece)) is Edited.GONE:
                posted = await self._create(piece, previous)
                if posted is None:
                    self._lacking = self._posts
                    return False
                current = posted.id
                if posted.is_new:
                    self._shown[current] = piece.chunk.text
                await record(position, current)
            if edited is Edited.DROPPED:
                return False
            previous = current
        for message_id in known[len(plan.chunks) :]:
            await self._delete(message_id)
        return True

    async def _change(self, message_id: str, piece: Piece) -> Edited:
        """Let a message show its piece."""
        text = piece.chunk.text
        if self._shown.get(message_id) == text:
            return Edited.DONE
        edited = await self._edit(message_id, text, piece.plan.priority)
        if edited is Edited.DONE:
            self._shown[message_id] = text
        return edited

    async def _create(self, piece: Piece, previous: str | None) -> Posted | None:
        """Begin the message of a piece, behind the `previous` one; none if a tick could not go."""
        return await self._post(piece.position, piece.chunk.text, piece.plan.priority, previous)

    @abstractmethod
    async def _post(self, position: int, text: str, priority: Priority, previous: str | None) -> Posted | None:
        """Post the message for this position of the reply, behind the `previous` one; none if a tick could not go."""

    @abstractmethod
    async def _edit(self, message_id: str, text: str, priority: Priority) -> Edited: ...

    @abstractmethod
    async def _delete(self, message_id: str) -> None:
        """Delete a message; one that is gone already is no fault."""

    @abstractmethod
    async def _own(self) -> dict[int, str]:
        """The ids of the messages of this reply that stand, by their positions, as the platform has them."""
