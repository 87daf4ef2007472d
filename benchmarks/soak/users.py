"""Simulated users that send messages to the bot, and wait for its answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from benchmarks.soak.script import find_answered
from benchmarks.soak.sessions import Place, count_unfinished, visible_text

#: Limit of a user's wait for an answer, in seconds.
ANSWER_TIMEOUT_SECONDS = 60.0

#: Seconds between two polls of a waiting user.
POLL_SECONDS = 0.2

#: Possible numbers of messages in a burst, after which a user waits for the answers.
BURST_SIZES = (1, 1, 1, 1, 2, 3)

#: Possible pauses in seconds after a message of a burst.
PAUSE_SECONDS = (0.1, 0.4)


@dataclass
class UserSession:
    """Session of one simulated user, whose messages are named like `s3-14`.

    Attributes:
        number: the session's number in the names.
        place: the channel, thread or DM.
        sent: the names of the sent messages, in order.
        sent_at: the time of each sent message by its name (monotonic seconds).
    """

    number: int
    platform: str
    place: Place
    sent: list[str] = field(default_factory=list)
    sent_at: dict[str, float] = field(default_factory=dict)

    @property
    def next_name(self) -> str:
        """Name of the next message, such as `s3-14`."""
        return f"s{self.number}-{len(self.sent)}"

    async def send_next(self, files: Mapping[str, str] | None = None) -> tuple[str, Any]:
        """Post the next message, and store its name and time in `sent` and `sent_at`.

        Args:
            files: texts of the attached files by file name.

        Returns:
            The name, and the platform's message.
        """
        name = self.next_name
        self.sent.append(name)
        self.sent_at[name] = monotonic()
        return name, await self.place.post_message(name, files)

    def has_answers(self, names: Sequence[str]) -> bool:
        """Return whether all messages with these names have complete answers.

        `find_answered` decides which are complete. A reply that still grows may count; `is_idle` excludes it.
        """
        return find_answered(visible_text(self.place)).issuperset(names)

    @property
    def is_idle(self) -> bool:
        """True once all messages are answered and no reply grows.

        A growing reply may look complete, although a new process will write it again after a restart.
        """
        return self.has_answers(self.sent) and not count_unfinished(self.place)

    async def wait_for_answers(self, names: Sequence[str]) -> bool:
        """Wait until all messages with these names have complete answers.

        An answer is complete once the visible text contains it with its `«end»`.

        Args:
            names: the names that `send_next` returned.

        Returns:
            True once all answers are complete; False if one is missing after `ANSWER_TIMEOUT_SECONDS`, a limit for all
            names together.
        """
        return await poll_until(lambda: self.has_answers(names))


async def poll_until(condition: Callable[[], bool]) -> bool:
    """Call `condition` every `POLL_SECONDS` until it returns True.

    Returns:
        True once `condition` has returned True; False after `ANSWER_TIMEOUT_SECONDS` without it.
    """
    for _ in range(int(ANSWER_TIMEOUT_SECONDS / POLL_SECONDS)):
        if condition():
            return True
        await asyncio.sleep(POLL_SECONDS)
    return condition()
