"""A reply as messages that are posted, edited and deleted until they are what they should be."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto

from channels.channel import Limits, Plan, Priority, Record


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


class MessageSurface(ABC):
    """A `Surface` of a platform on which a message, once posted, can be edited and deleted.

    How a message is posted, edited, deleted and found again is up to the platform's own class.
    """

    limits: Limits

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    async def show(self, plan: Plan, known: Sequence[str], record: Record) -> bool:
        """Edit, post and delete until the platform shows the plan: see `Surface`."""
        previous: str | None = None
        for position, chunk in enumerate(plan.chunks):
            current = known[position] if position < len(known) else None
            edited = await self._show(current, chunk.text, plan.priority) if current else Edited.GONE
            if edited is Edited.DROPPED:
                return False
            if edited is Edited.GONE:
                current = await self._post(position, chunk.text, plan.priority, previous)
                if current is None:
                    return False
                self._shown[current] = chunk.text
                await record(position, current)
            previous = current
        for message_id in known[len(plan.chunks) :]:
            await self._delete(message_id)
        return True

    async def find(self) -> list[str]:
        own = await self._own()
        return [own[position] for position in sorted(own)]

    async def say(self, text: str) -> None:
        await self._post(0, text, Priority.FINAL, None)

    @abstractmethod
    async def begun(self) -> None: ...

    async def _show(self, message_id: str, text: str, priority: Priority) -> Edited:
        if self._shown.get(message_id) == text:
            return Edited.DONE
        edited = await self._edit(message_id, text, priority)
        if edited is Edited.DONE:
            self._shown[message_id] = text
        return edited

    @abstractmethod
    async def _post(self, position: int, text: str, priority: Priority, previous: str | None) -> str | None:
        """Post the message for this position of the reply, behind the `previous` one.

        Returns:
            The new message's id; none if a tick could not go.
        """

    @abstractmethod
    async def _edit(self, message_id: str, text: str, priority: Priority) -> Edited: ...

    @abstractmethod
    async def _delete(self, message_id: str) -> None:
        """Delete a message; one that is gone already is no fault."""

    @abstractmethod
    async def _own(self) -> dict[int, str]:
        """The ids of the messages of this reply that stand, by their positions, as the platform has them."""
