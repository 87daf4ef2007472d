"""Load of the benchmark: concurrent replies of a model that streams evenly.

Each word contains its number, so a visible text reveals its reply and progress. All times of a load are platform times:
at `speed` 4, a platform second takes 250 ms.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic

TOKENS_PER_SECOND = 40
STREAM_SECONDS = 30.0
TOKENS = int(STREAM_SECONDS * TOKENS_PER_SECOND)

#: Number of channels for each number of replies.
CHANNEL_COUNTS = {1: 1, 10: 5, 50: 10, 200: 20}

#: Seconds within which all users ask, and from their end to the model's first word.
ASKING_SECONDS, THINKING_SECONDS = 1.0, 1.0

#: Number of words in a paragraph.
_PARAGRAPH_WORDS = 90

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"(?<![0-9A-Za-z])[0-5][0-9a-z]{3}(?![0-9A-Za-z])")


def _scatter(number: int) -> float:
    """Return a fixed pseudo-random fraction in [0, 1) for a number.

    The fractions of successive numbers are spread evenly.
    """
    return number * 0.618034 % 1


class Ending(StrEnum):
    """Order in which the replies of a load end: all at once, or one after the other."""

    SIMULTANEOUS = "together"
    SUCCESSIVE = "in turn"


@dataclass(frozen=True, slots=True)
class Load:
    """Number and pace of a measurement's replies; for some time all of them grow.

    Attributes:
        replies: the number of replies.
        channels: the number of channels; the replies are distributed over them evenly.
        ending: the order in which the replies end.
        speed: platform seconds in a real second.
    """

    replies: int
    channels: int
    ending: Ending
    speed: float = 1.0

    @property
    def start_interval(self) -> float:
        """Platform seconds between the starts of two successive replies, or 0.

        It is 0 if all replies end at once.
        """
        return STREAM_SECONDS / self.replies if self.ending is Ending.SUCCESSIVE else 0.0

    def channel(self, number: int) -> int:
        return number % self.channels


def build_token(reply: int, position: int) -> str:
    """Return the word at `position` of a reply, with the space or blank line after it.

    Nothing follows the last word of a reply. The word has four base-36 digits that encode the reply's number and the
    position; `last_position` decodes them.
    """
    number, word = reply * TOKENS + position, ""
    for _ in range(4):
        number, digit = divmod(number, 36)
        word = _DIGITS[digit] + word
    if position == TOKENS - 1:
        return word
    return word + ("\n\n" if position % _PARAGRAPH_WORDS == _PARAGRAPH_WORDS - 1 else " ")


def last_position(text: str) -> tuple[int, int] | None:
    """Return (reply number, position) of the last word in a text; None without words.

    Only words of `build_token` count.
    """
    words = _WORD.findall(text[-200:]) or _WORD.findall(text)
    return divmod(int(words[-1], 36), TOKENS) if words else None


@dataclass(slots=True)
class TokenStream:
    """Words of the model for one reply, emitted over time.

    Attributes:
        number: the number of the reply in the load.
        token_times: the time of each emitted word (real monotonic seconds).
        tokens: all words with their separators.
        ended: set after the last word.
        starts_at: the due time of the first word (real monotonic seconds).
    """

    number: int
    token_times: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    starts_at: float = 0.0
    _on_token: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.tokens = [build_token(self.number, position) for position in range(TOKENS)]

    @property
    def text(self) -> str:
        return "".join(self.tokens)

    def subscribe(self, on_token: Callable[[str], None]) -> None:
        """Call `on_token` with each word emitted so far, and later with each new one.

        A stream has one subscriber; a second call replaces it.
        """
        for position in range(len(self.token_times)):
            on_token(self.tokens[position])
        self._on_token = on_token

    def emit_token(self, now: float) -> None:
        """Pass the next word to the subscriber, if any, and add its time to `token_times`.

        The last word sets `ended`.

        Args:
            now: the time of the word (real monotonic seconds).

        Raises:
            IndexError: all words are emitted.
        """
        word = self.tokens[len(self.token_times)]
        self.token_times.append(now)
        if self._on_token is not None:
            self._on_token(word)
        if len(self.token_times) == TOKENS:
            self.ended.set()


class TokenStreamer:
    """Model of a load that emits the words of all its streams when they are due.

    Attributes:
        summed_delay: the real seconds between a word's due time and its emission, summed over all words.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._token_interval = 1 / TOKENS_PER_SECOND / load.speed
        self.streams = [TokenStream(number) for number in range(load.replies)]
        self.summed_delay = 0.0

    def prompt_delay(self, stream: TokenStream) -> float:
        """Return the real seconds from the load's start to the prompt of a stream."""
        return (stream.number * self._load.start_interval + _scatter(stream.number) * ASKING_SECONDS) / self._load.speed

    async def run(self) -> None:
        """Emit the words of all streams at their due times, until all have ended.

        Each word goes to the stream's subscriber: see `TokenStream.emit_token`. The due times count from now;
        it sets `TokenStream.starts_at` to the first. Streams that are added later are ignored.
        """
        began = monotonic()
        for stream in self.streams:
            first = stream.number * self._load.start_interval + ASKING_SECONDS + THINKING_SECONDS
            offset = _scatter(stream.number) * self._token_interval  # no two streams share an instant
            stream.starts_at = began + first / self._load.speed + offset
        unfinished = list(self.streams)
        while unfinished:
            now = monotonic()
            for stream in unfinished:
                for due in self._due(stream, now):
                    stream.emit_token(now)
                    self.summed_delay += now - due
            unfinished = [stream for stream in unfinished if not stream.ended.is_set()]
            await asyncio.sleep(min(0.005, self._token_interval / 2))

    def _due(self, stream: TokenStream, now: float) -> Iterator[float]:
        for position in range(len(stream.token_times), TOKENS):
            due = stream.starts_at + position * self._token_interval
            if due > now:
                return
            yield due
