"""Those who talk to the bot."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from benchmarks.soak.script import answered
from benchmarks.soak.sessions import Place, shown, unfinished

#: Seconds after which somebody who gets no answer goes on.
PATIENCE = 60.0

#: Seconds between two looks of somebody who waits for an answer.
LOOK = 0.2

#: How many messages somebody says before he waits for the answers: any of these.
BURSTS = (1, 1, 1, 1, 2, 3)

#: Seconds from one message to the next of somebody who does not wait: as quick as people are.
PAUSES = (0.1, 0.4)


@dataclass
class Session:
    """One conversation.

    Attributes:
        said: the messages, by their names, in order.
        said_at: when each was said, on the monotonic clock, in seconds.
    """

    number: int
    platform: str
    place: Place
    said: list[str] = field(default_factory=list)
    said_at: dict[str, float] = field(default_factory=dict)

    @property
    def next(self) -> str:
        """The name of the next message."""
        return f"s{self.number}-{len(self.said)}"

    async def say(self, papers: Mapping[str, str] | None = None) -> tuple[str, Any]:
        """Say the next message; its name, and what the platform has of it."""
        name = self.next
        self.said.append(name)
        self.said_at[name] = monotonic()
        return name, await self.place.say(name, papers)

    def has(self, names: Sequence[str]) -> bool:
        """Whether these have been answered."""
        return answered(shown(self.place)).issuperset(names)

    @property
    def is_at_rest(self) -> bool:
        """Whether all that was said has its answer, and none is being written: one that seems whole may not have come
        to its end, and be given anew by the process that comes next.
        """
        return self.has(self.said) and not unfinished(self.place)

    async def wait(self, names: Sequence[str]) -> bool:
        """Wait for an answer to these messages, for as long as one has patience; whether there is one."""
        return await patiently(lambda: self.has(names))


async def patiently(comes: Callable[[], bool]) -> bool:
    """Wait until something comes, for as long as one has patience; whether it has."""
    for _ in range(int(PATIENCE / LOOK)):
        if comes():
            return True
        await asyncio.sleep(LOOK)
    return comes()
