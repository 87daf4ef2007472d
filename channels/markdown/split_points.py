"""Split points of a text: between paragraphs, else lines, else words, else grapheme clusters (Unicode UAX #29)."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain

import regex  # type: ignore[import-untyped]  # it comes without types

from channels.markdown.blocks import Kind, begins_block
from channels.markdown.inline import Scan
from channels.markdown.renderer import Line

# How good a seam is, the best first.
_PARAGRAPH, _LINE, _CODE = range(3)

_TABLE = {Kind.TABLE_HEAD, Kind.DELIMITER, Kind.ROW}

_WORDS = re.compile(r"(?<=\s)(?=\S)")

#: What a message must not begin with if it did not begin a line before: it would mean something else there.
_LOOKS_LIKE_BLOCK = re.compile(r"[#>+\-*=|`~]|\d{1,9}(?:[.)]|\Z)")

_CLUSTER = regex.compile(r"\X")


def seam(lines: Sequence[Line], text: str, marks: Sequence[str]) -> int:
    """Where to cut, somewhat before the end of `text`, which is the first that does not fit.

    Args:
        lines: of `text`; the last one may be incomplete.
        marks: the emphasis that is open where `text` begins.
    """
    first = len(text) - len(text.lstrip())
    middle = first + (len(text) - first) // 2
    atoms = _atoms(lines, marks)

    between_lines = [(rank, -at) for rank, at in _between_lines(lines) if middle <= at < len(text)]
    between_words = _between_words(lines, text, middle)  # looked for only if there is nothing better
    for at in chain((-at for _, at in sorted(between_lines)), between_words):
        if is_boundary(text, at) and not _is_within(at, atoms):
            return at
    ends = [at for at in boundaries(text, first, len(text)) if at > first and not text[at].isspace()]
    whole = [at for at in ends if not _is_within(at, atoms)]
    if fair := [at for at in whole if at >= middle and not _LOOKS_LIKE_BLOCK.match(text, at)]:
        return fair[-1]
    early = {*(at for _, at in _between_lines(lines)), *_between_words(lines, text, first)}.intersection(whole)
    return max(early or whole or ends or [max(1, len(text) - 1)])


def _between_lines(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Ranks and places."""
    for index, line in enumerate(lines):
        rank = _rank(lines, index) if index and line.text.strip() else None
        if rank is not None:
            yield rank, line.start


def _between_words(lines: Sequence[Line], text: str, least: int) -> Iterator[int]:
    """Places, the last one first."""
    for line in reversed(lines):
        stop = line.start + len(line.text)
        if stop > least and line.kind in (Kind.TEXT, Kind.HEADING, Kind.CODE):
            for found in reversed([*_WORDS.finditer(text, max(line.start + 1, least), stop)]):
                if line.kind is Kind.CODE or not _LOOKS_LIKE_BLOCK.match(text, found.start()):
                    yield found.start()


def _rank(lines: Sequence[Line], index: int) -> int | None:
    """How good it is to cut before this line."""
    line = lines[index]
    blanks = index
    while blanks and not lines[blanks - 1].text.strip():
        blanks -= 1
    before = lines[blanks - 1] if blanks else None
    if line.kind in (Kind.DELIMITER, Kind.FENCE_END) or before is None:
        return None
    if before.kind in (Kind.DELIMITER, Kind.FENCE, Kind.HEADING):  # which would stand there with nothing behind it
        return None
    if line.kind in (Kind.CODE, Kind.ROW):
        return _CODE
    announces = before.text.rstrip().endswith(":")
    return _PARAGRAPH if blanks < index and not announces else _LINE


def _atoms(lines: Sequence[Line], marks: Sequence[str]) -> list[tuple[int, int]]:
    """What must not be cut: from where to where."""
    atoms = []
    paragraph: list[Line] = []
    for line in [*lines, None]:
        if paragraph and (line is None or line.kind is not Kind.TEXT or begins_block(line.text)):
            text = "".join(one.text + one.end for one in paragraph)
            scan = Scan(text, marks if paragraph[0] is lines[0] else (), grows=line is None)
            atoms += [(paragraph[0].start + start, paragraph[0].start + end) for start, end in scan.atoms]
            paragraph = []
        if line is None:
            break
        if line.kind is Kind.TEXT:
            paragraph.append(line)
        elif line.kind is Kind.HEADING:
            atoms += [(line.start + start, line.start + end) for start, end in Scan(line.text, grows=True).atoms]
        elif line.kind in _TABLE:
            has_head = line.kind is Kind.DELIMITER and bool(atoms) and atoms[-1][1] == line.start
            start = atoms.pop()[0] if has_head else line.start  # no head stands without it
            atoms.append((start, line.stop))
    return atoms


def _is_within(at: int, atoms: Sequence[tuple[int, int]]) -> bool:
    """Whether `at` is inside of one of `atoms`, which are in order."""
    before = bisect_left(atoms, (at, 0))
    return before > 0 and at < atoms[before - 1][1]


def boundaries(text: str, start: int, stop: int) -> Iterator[int]:
    """Where in `text` a character of the reader's begins, between `start`, which is such a place, and `stop`."""
    for found in _CLUSTER.finditer(text, start, stop):
        yield found.start()


def is_boundary(text: str, at: int) -> bool:
    """Whether a character of the reader's begins at `at`, when what stands before it is white space."""
    return at == 0 or len(_CLUSTER.match(text, at - 1, at + 1)[0]) == 1
