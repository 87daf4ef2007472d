"""Load: concurrent replies of models that stream numbered words at an even pace.

All times of a load are platform times: at `speed` 4, a platform second takes 250 ms.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic

TOKENS_PER_SECOND = 40
SECONDS = 30.0
TOKENS = int(SECONDS * TOKENS_PER_SECOND)

#: Number of channels for each number of replies.
CHANNELS = {1: 1, 10: 5, 50: 10, 200: 20}

#: Seconds in which all users ask, and from then to the model's first word.
ASKING_SECONDS, THINKING_SECONDS = 1.0, 1.0

#: Number of words in a paragraph.
_PARAGRAPH = 90

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"(?<![0-9A-Za-z])[0-5][0-9a-z]{3}(?![0-9A-Za-z])")


def _scatter(number: int) -> float:
    """Return a position in [0, 1) that differs for each number, and is spread evenly."""
    return number * 0.618034 % 1


class Ending(StrEnum):
    """Order of the endings: all at once, or one after the other."""

    TOGETHER = "together"
    IN_TURN = "in turn"


@dataclass(frozen=True, slots=True)
class Load:
    """Size of a measurement; at some moment all replies grow.

    Attributes:
        replies, channels: how many; the replies are distributed over the channels evenly.
        speed: platform seconds in a real second.
    """

    replies: int
    channels: int
    ending: Ending
    speed: float = 1.0

    @property
    def step(self) -> float:
        """Platform seconds between the starts of two replies."""
        return SECONDS / self.replies if self.ending is Ending.IN_TURN else 0.0

    def channel(self, number: int) -> int:
        return number % self.channels


def build_token(reply: int, position: int) -> str:
    """Return the word of a position in a reply, with the space or blank line after it.

    The word has four base-36 digits that encode both, so that a visible text reveals its reply and progress.
    """
    number, word = reply * TOKENS + position, ""
    for _ in range(4):
        number, digit = divmod(number, 36)
        word = _DIGITS[digit] + word
    if position == TOKENS - 1:
        return word
    return word + ("\n\n" if position % _PARAGRAPH == _PARAGRAPH - 1 else " ")


def last_position(text: str) -> tuple[int, int] | None:
    """Return the number of a text's reply and the position of its last word; None without words."""
    words = _WORD.findall(text[-200:]) or _WORD.findall(text)
    return divmod(int(words[-1], 36), TOKENS) if words else None


@dataclass(slots=True)
class Speech:
    """Words of the model in one reply.

    Attributes:
        number: the number of the reply in the load.
        spoken: the time of each emitted word (real monotonic seconds).
        tokens: all words with their separators.
        ended: set after the last word.
        begins: the due time of the first word (real monotonic seconds).
    """

    number: int
    spoken: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    begins: float = 0.0
    _on_word: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.tokens = [build_token(self.number, position) for position in range(TOKENS)]

    @property
    def text(self) -> str:
        return "".join(self.tokens)

    def subscribe(self, on_word: Callable[[str], None]) -> None:
        """Call `on_word` with each word so far, and then with each new one. A speech has one subscriber."""
        for position in range(len(self.spoken)):
            on_word(self.tokens[position])
        self._on_word = on_word

    def emit_word(self, now: float) -> None:
        """Pass the next word to the subscriber; `now` is its time in monotonic seconds."""
        word = self.tokens[len(self.spoken)]
        self.spoken.append(now)
        if self._on_word is not None:
            self._on_word(word)
        if len(self.spoken) == TOKENS:
            self.ended.set()


class SpeechStreamer:
    """Model of a load: emits the words of all its speeches when they are due.

    Attributes:
        summed_delay: the delay of all words together, in real seconds.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._pace = 1 / TOKENS_PER_SECOND / load.speed
        self.speeches = [Speech(number) for number in range(load.replies)]
        self.summed_delay = 0.0

    def question_delay(self, speech: Speech) -> float:
        """Return the real seconds from the start of the load to the question of a speech."""
        return (speech.number * self._load.step + _scatter(speech.number) * ASKING_SECONDS) / self._load.speed

    async def run(self) -> None:
        """Stream all speeches to their end."""
        began = monotonic()
        for speech in self.speeches:
            first = speech.number * self._load.step + ASKING_SECONDS + THINKING_SECONDS
            offset = _scatter(speech.number) * self._pace  # no two speeches share an instant
            speech.begins = began + first / self._load.speed + offset
        unfinished = list(self.speeches)
        while unfinished:
            now = monotonic()
            for speech in unfinished:
                for due in self._due(speech, now):
                    speech.emit_word(now)
                    self.summed_delay += now - due
            unfinished = [speech for speech in unfinished if not speech.ended.is_set()]
            await asyncio.sleep(min(0.005, self._pace / 2))

    def _due(self, speech: Speech, now: float) -> Iterator[float]:
        for position in range(len(speech.spoken), TOKENS):
            due = speech.begins + position * self._pace
            if due > now:
                return
            yield due
