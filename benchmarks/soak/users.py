"""Users of the bot."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from benchmarks.soak.script import answered
from benchmarks.soak.sessions import Place, shown, unfinished

#: Limit of a user's wait for an answer, in seconds.
PATIENCE = 60.0

#: Seconds between two polls of a waiting user.
LOOK = 0.2

#: Possible numbers of messages before a user waits for the answers.
BURSTS = (1, 1, 1, 1, 2, 3)

#: Seconds between two messages of a user who does not wait.
PAUSES = (0.1, 0.4)


@dataclass
class Session:
    """Session of a user.

    Attributes:
        said: the names of the messages, in order.
        said_at: the time of each message (monotonic seconds).
    """

    number: int
    platform: str
    place: Place
    said: list[str] = field(default_factory=list)
    said_at: dict[str, float] = field(default_factory=dict)

    @property
    def next(self) -> str:
        """Return the name of the next message."""
        return f"s{self.number}-{len(self.said)}"

    async def say(self, papers: Mapping[str, str] | None = None) -> tuple[str, Any]:
        """Send the next message; return its name and the platform's message."""
        name = self.next
        self.said.append(name)
        self.said_at[name] = monotonic()
        return name, await self.place.say(name, papers)

    def has(self, names: Sequence[str]) -> bool:
        """Return whether these messages are answered."""
        return answered(shown(self.place)).issuperset(names)

    @property
    def is_at_rest(self) -> bool:
        """Return whether all messages are answered and no reply grows.

        The next process may write an answer again that only looks complete.
        """
        return self.has(self.said) and not unfinished(self.place)

    async def wait(self, names: Sequence[str]) -> bool:
        """Wait for an answer to these messages; return whether it came in time."""
        return await patiently(lambda: self.has(names))


async def patiently(comes: Callable[[], bool]) -> bool:
    """Poll until `comes` holds; return whether it did in time."""
    for _ in range(int(PATIENCE / LOOK)):
        if comes():
            return True
        await asyncio.sleep(LOOK)
    return comes()
