"""Plans a reply: cuts its text, as it grows, into the messages that a platform accepts."""

import re
import unicodedata
from dataclasses import dataclass

from channels.channel import Chunk, Limits, Plan, Priority

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<info>.*)$")

#: Where a text may be cut, the best place first.
_SEAMS = ("\n\n", "\n", " ")

_JOINERS = {"\u200d", "\ufe0f", "\ufe0e"}


class Planner:
    """The chunks of one reply.

    The spans of the chunks partition the text. A chunk that has another one behind it stays as it is while
    text is fed; `replace` begins anew. A code fence that a cut goes through is closed before it and opened
    again behind it.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._text = ""
        self._stable: list[Chunk] = []
        self._fence: _Fence | None = None  # open where the tail begins

    @property
    def text(self) -> str:
        return self._text

    def feed(self, delta: str) -> None:
        self._text += delta

    def replace(self, text: str) -> None:
        if text != self._text:
            self._text, self._stable, self._fence = text, [], None

    def plan(self, priority: Priority) -> Plan:
        """The messages that should stand now; none as long as there is nothing to read."""
        while chunk := self._overflow():
            self._stable.append(chunk)
        start = self._tail
        tail = Chunk(start, len(self._text), _present(self._text[start:], self._fence))
        chunks = [*self._stable, tail] if tail.text else list(self._stable)
        return Plan(chunks, priority)

    @property
    def _tail(self) -> int:
        return self._stable[-1].end if self._stable else 0

    def _overflow(self) -> Chunk | None:
        """The next chunk that is full, if the tail no longer fits into one message."""
        start = self._tail
        tail = self._text[start:]
        if self._fits(tail):
            return None
        low, high = 1, len(tail)
        while low < high:  # the most that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(tail[:middle]) else (low, middle - 1)
        end = _seam(tail, low)
        shown = _present(tail[:end], self._fence)
        self._fence = _fence_after(tail[:end], self._fence)
        return Chunk(start, start + end, shown)

    def _fits(self, text: str) -> bool:
        if len(text) > self._limits.chunk_size:  # no platform counts less than one unit a character
            return False
        return self._limits.measure(_present(text, self._fence)) <= self._limits.chunk_size


@dataclass(frozen=True, slots=True)
class _Fence:
    opening: str
    marks: str

    def is_closed_by(self, line: str) -> bool:
        found = _FENCE.match(line)
        return (
            found is not None
            and not found["info"].strip()
            and found["marks"][0] == self.marks[0]
            and len(found["marks"]) >= len(self.marks)
        )


def _fence_after(text: str, fence: _Fence | None) -> _Fence | None:
    """The fence that is open behind `text`, when `fence` was open before it."""
    for line in text.split("\n"):
        if fence is None:
            found = _FENCE.match(line)
            if found and not (found["marks"][0] == "`" and "`" in found["info"]):
                fence = _Fence(line.strip(), found["marks"])
        elif fence.is_closed_by(line):
            fence = None
    return fence


def _present(text: str, fence: _Fence | None) -> str:
    """`text` as one message of its own: balanced, and without the white space that a cut leaves."""
    body = text.strip("\n").rstrip()
    if not body:
        return ""
    still_open = _fence_after(text, fence)
    opening = f"{fence.opening}\n" if fence else ""
    closing = f"\n{still_open.marks}" if still_open else ""
    return opening + body + closing


def _seam(text: str, most: int) -> int:
    """Where to cut `text` at `most` characters or a little before: between paragraphs, lines or words."""
    for mark in _SEAMS:
        found = text.rfind(mark, most // 2, most)
        if found > 0:
            return found + len(mark)
    while most > 1 and _joins(text[most]):
        most -= 1
    return most


def _joins(character: str) -> bool:
    return bool(unicodedata.combining(character)) or character in _JOINERS
