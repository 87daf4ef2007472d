"""Plans a reply: cuts its text, as it grows, into the messages that a platform accepts."""

import re
import unicodedata
from dataclasses import dataclass

from channels.channel import Chunk, Limits, Plan, Priority

#: The longest run of marks that opens a fence here, and the longest info string that is said again behind a cut.
_MOST_MARKS = 16
_MOST_INFO = 40

_MARKS = rf"`{{3,{_MOST_MARKS}}}(?!`)|~{{3,{_MOST_MARKS}}}(?!~)"
_FENCE = re.compile(rf"^ {{0,3}}(?P<marks>{_MARKS})(?P<info>[^\r\n]*)$")

#: CommonMark: a carriage return ends a line, with or without a line feed.
_LINE_END = re.compile(r"\r\n?|\n")

#: What may be added to close a fence, for every text that may have one: what fits never depends on what follows.
_CLOSING = 1 + _MOST_MARKS

#: Where a text may be cut, the best place first. Within a line, what follows must not look like a fence.
_SEAMS = (re.compile(r"\n\n"), re.compile(r"\n"), re.compile(r" (?=[^ `~])"))

#: The most indentation that is kept at the head of a chunk, in characters.
_MOST_INDENT = 80

_SPACE = re.compile(r"\s*")
_JOINERS = {"\u200d", "\ufe0f", "\ufe0e"}


class Planner:
    """The chunks of one reply.

    The spans of the chunks partition the text. A chunk that has another one behind it stays as it is while
    text is fed; `replace` begins anew. A code fence that a cut goes through is closed before it and opened
    again behind it. Where the cuts fall is a matter of the text alone, and not of the pieces in which it came.
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
        while cut := self._cut():
            body = self._text[self._begin() : cut].rstrip()
            self._stable.append(Chunk(self._tail, cut, _present(body, self._fence)))
            self._fence = _fence_after(body, self._fence)
        body = self._text[self._begin() :].rstrip()
        tail = Chunk(self._tail, len(self._text), _present(body, self._fence))
        return Plan([*self._stable, tail] if body else [], priority)  # behind a cut there is always something

    @property
    def _tail(self) -> int:
        return self._stable[-1].end if self._stable else 0

    def _begin(self) -> int:
        """Where the tail has something to read: its first line that is not blank, with its indentation."""
        first = _space_after(self._text, self._tail)
        line = max(self._tail, self._text.rfind("\n", self._tail, first) + 1)
        return line if first - line <= _MOST_INDENT else first

    def _cut(self) -> int | None:
        """Where the tail is to be cut, if it no longer fits into one message."""
        begin = self._begin()
        # No platform counts less than one unit a character.
        window = self._text[begin : begin + self._limits.chunk_size + 1]
        low, high = (len(window) if self._fits(window) else 1), len(window)
        while low < high:  # the most that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(window[:middle]) else (low, middle - 1)
        most = _space_after(self._text, begin + low)  # white space at the end costs nothing
        return None if most >= len(self._text) else _seam(self._text, begin, most)

    def _fits(self, text: str) -> bool:
        size = self._limits.measure(_opening(self._fence) + text.rstrip())
        if self._fence or "```" in text or "~~~" in text:
            size += _CLOSING
        return size <= self._limits.chunk_size


@dataclass(frozen=True, slots=True)
class _Fence:
    marks: str
    info: str

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
    for line in _LINE_END.split(text):
        if fence is None:
            found = _FENCE.match(line)
            if found and not (found["marks"][0] == "`" and "`" in found["info"]):
                fence = _Fence(found["marks"], found["info"].strip())
        elif fence.is_closed_by(line):
            fence = None
    return fence


def _opening(fence: _Fence | None) -> str:
    if fence is None:
        return ""
    return f"{fence.marks}{fence.info if len(fence.info) <= _MOST_INFO else ''}\n"


def _present(body: str, fence: _Fence | None) -> str:
    """`body` as one message of its own, when `fence` was open before it: with every fence closed."""
    still_open = _fence_after(body, fence)
    return _opening(fence) + body + (f"\n{still_open.marks}" if still_open else "")


def _seam(text: str, begin: int, most: int) -> int:
    """Where to cut `text`, at `most` or somewhat before: between paragraphs, lines, words or characters."""
    least = _space_after(text, begin) + 1
    middle = max(least, (begin + most) // 2)
    for mark in _SEAMS:
        cuts = [found.end() for found in mark.finditer(text, middle, most + 1) if found.end() <= most]
        if cuts:
            return cuts[-1]
    for cut in range(most, middle, -1):
        if text[cut] not in " `~" and not _joins(text[cut]) and text[cut - 1] != "\u200d":
            return cut
    return most


def _space_after(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _joins(character: str) -> bool:
    return bool(unicodedata.combining(character)) or character in _JOINERS
