"""Load: concurrent replies of models that stream numbered words at an even pace.

All times of a load are platform times: at `speed` 4, a platform second takes 250 ms.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic

TOKENS_A_SECOND = 40
SECONDS = 30.0
TOKENS = int(SECONDS * TOKENS_A_SECOND)

#: Number of channels for each number of replies.
CHANNELS = {1: 1, 10: 5, 50: 10, 200: 20}

#: Seconds in which all users ask, and from then to the model's first word.
ASKED, THOUGHT = 1.0, 1.0

#: Number of words in a paragraph.
_PARAGRAPH = 90

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"(?<![0-9A-Za-z])[0-5][0-9a-z]{3}(?![0-9A-Za-z])")


def _scattered(number: int) -> float:
    """Return an evenly scattered position between 0 and 1 for each number."""
    return number * 0.618034 % 1


class Ending(StrEnum):
    """Order of the endings: all together, or in turn as they began."""

    TOGETHER = "together"
    IN_TURN = "in turn"


@dataclass(frozen=True, slots=True)
class Load:
    """Number of replies and channels; at some moment all replies grow."""

    replies: int
    channels: int
    ending: Ending
    speed: float = 1.0

    @property
    def step(self) -> float:
        """Seconds between the starts of two replies."""
        return SECONDS / self.replies if self.ending is Ending.IN_TURN else 0.0

    def channel(self, number: int) -> int:
        return number % self.channels


def token(reply: int, position: int) -> str:
    """Return a unique word of four letters for a position of a reply, with its separator."""
    number, word = reply * TOKENS + position, ""
    for _ in range(4):
        number, digit = divmod(number, 36)
        word = _DIGITS[digit] + word
    if position == TOKENS - 1:
        return word
    return word + ("\n\n" if position % _PARAGRAPH == _PARAGRAPH - 1 else " ")


def last_place(text: str) -> tuple[int, int] | None:
    """Return the reply of a text and the position of its last word; None without words."""
    words = _WORD.findall(text[-200:]) or _WORD.findall(text)
    return divmod(int(words[-1], 36), TOKENS) if words else None


@dataclass(slots=True)
class Speech:
    """Speech of one model.

    Attributes:
        number: the number of the reply in the load.
        spoken: the time of each word (real monotonic seconds).
    """

    number: int
    spoken: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    begins: float = 0.0
    _hear: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.tokens = [token(self.number, position) for position in range(TOKENS)]

    @property
    def text(self) -> str:
        return "".join(self.tokens)

    def listen(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with each word, at once with the words so far."""
        for position in range(len(self.spoken)):
            hear(self.tokens[position])
        self._hear = hear

    def say(self, now: float) -> None:
        word = self.tokens[len(self.spoken)]
        self.spoken.append(now)
        if self._hear is not None:
            self._hear(word)
        if len(self.spoken) == TOKENS:
            self.ended.set()


class Model:
    """Task that streams all speeches of a load on time.

    Attributes:
        late: the summed delay of the words in real seconds.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._pace = 1 / TOKENS_A_SECOND / load.speed
        self.speeches = [Speech(number) for number in range(load.replies)]
        self.late = 0.0

    def asked_at(self, speech: Speech) -> float:
        """Return the real seconds from the beginning to the question."""
        return (speech.number * self._load.step + _scattered(speech.number) * ASKED) / self._load.speed

    async def run(self) -> None:
        """Stream all speeches to their end."""
        began = monotonic()
        for speech in self.speeches:
            first = speech.number * self._load.step + ASKED + THOUGHT
            apart = _scattered(speech.number) * self._pace  # no two speeches share an instant
            speech.begins = began + first / self._load.speed + apart
        silent = list(self.speeches)
        while silent:
            now = monotonic()
            for speech in silent:
                for due in self._due(speech, now):
                    speech.say(now)
                    self.late += now - due
            silent = [speech for speech in silent if not speech.ended.is_set()]
            await asyncio.sleep(min(0.005, self._pace / 2))

    def _due(self, speech: Speech, now: float) -> Iterator[float]:
        for position in range(len(speech.spoken), TOKENS):
            due = speech.begins + position * self._pace
            if due > now:
                return
            yield due
