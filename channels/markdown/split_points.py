"""Split points of a text: between paragraphs, lines, words or grapheme clusters.

Grapheme clusters: Unicode UAX #29.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain

import regex  # type: ignore[import-untyped]  # it comes without types

from channels.markdown.blocks import LineKind
from channels.markdown.inline import InlineParser
from channels.markdown.renderer import TABLE_KINDS, SourceLine, group_lines

# Ranks of split points, the best first.
_PARAGRAPH, _LINE, _CODE = range(3)

_WORDS = re.compile(r"(?<=\s)(?=\S)")

#: Text that would become a block marker at the start of a message.
_LOOKS_LIKE_BLOCK = re.compile(r"[#>+\-*=|`~]|\d{1,9}(?:[.)]|\Z)")

_CLUSTER = regex.compile(r"\X")


def find_split(lines: Sequence[SourceLine], text: str, marks: Sequence[str], *, has_spoilers: bool) -> int:
    """Return the index at which to split a text that is just too long for a message.

    An index in the second half of the text is preferred: between paragraphs, else lines, else words, else grapheme
    clusters (visible characters). A link or token is split only if there is no other index.
    """
    first = len(text) - len(text.lstrip())
    middle = first + (len(text) - first) // 2
    unsplittable = _unsplittable_spans(lines, marks, has_spoilers=has_spoilers)

    between_lines = [(rank, -at) for rank, at in _line_starts(lines) if middle <= at < len(text)]
    between_words = _word_starts(lines, text, middle)  # lazy: most splits are between lines
    for at in chain((-at for _, at in sorted(between_lines)), between_words):
        if is_cluster_start(text, at) and not _is_within(at, unsplittable):
            return at
    clusters = [at for at in cluster_starts(text, first, len(text)) if at > first and not text[at].isspace()]
    clusters = [at for at in clusters if not (text[at] in "->" and text[at - 1] == "-")]  # in the end of a comment
    allowed = [at for at in clusters if not _is_within(at, unsplittable)]
    if candidates := [at for at in allowed if at >= middle and not _LOOKS_LIKE_BLOCK.match(text, at)]:
        return candidates[-1]
    early_candidates = {*(at for _, at in _line_starts(lines)), *_word_starts(lines, text, first)}.intersection(allowed)
    return max(early_candidates or allowed or clusters or [max(1, len(text) - 1)])


def _line_starts(lines: Sequence[SourceLine]) -> Iterator[tuple[int, int]]:
    """Yield the rank (see `_rank_split`) and the start index of each line that may begin a chunk."""
    for index, line in enumerate(lines):
        rank = _rank_split(lines, index) if index and line.text.strip() else None
        if rank is not None:
            yield rank, line.start


def _word_starts(lines: Sequence[SourceLine], text: str, start: int) -> Iterator[int]:
    """Yield the start indexes of the words from `start` on, the last word first.

    Starts of lines and table rows are left out. So are words outside code that would look like a block marker (such as
    `#`) at the start of a message.
    """
    for line in reversed(lines):
        stop = line.start + len(line.text)
        if stop > start and line.kind in (LineKind.TEXT, LineKind.HEADING, LineKind.CODE):
            for found in reversed([*_WORDS.finditer(text, max(line.start + 1, start), stop)]):
                if line.kind is LineKind.CODE or not _LOOKS_LIKE_BLOCK.match(text, found.start()):
                    yield found.start()


def _rank_split(lines: Sequence[SourceLine], index: int) -> int | None:
    """Return the rank of a split before a line, from 0 for the best; None if the text must not be split there."""
    line = lines[index]
    blanks = index
    while blanks and not lines[blanks - 1].text.strip():
        blanks -= 1
    before = lines[blanks - 1] if blanks else None
    if line.kind in (LineKind.DELIMITER, LineKind.FENCE_END) or before is None:
        return None
    if before.kind in (
        LineKind.DELIMITER,
        LineKind.FENCE,
        LineKind.HEADING,
    ):  # they would end the message
        return None
    if line.kind in (LineKind.CODE, LineKind.ROW):
        return _CODE
    announces = before.text.rstrip().endswith(":")
    return _PARAGRAPH if blanks < index and not announces else _LINE


def _unsplittable_spans(
    lines: Sequence[SourceLine], marks: Sequence[str], *, has_spoilers: bool
) -> list[tuple[int, int]]:
    """Return the start and end of each link, URL, inline code, token and table row, in order."""
    unsplittable = list[tuple[int, int]]()
    groups = group_lines(lines)
    for group in groups:
        first = group[0]
        kind = group[0].kind
        if kind in TABLE_KINDS:
            head = 2 if kind is LineKind.TABLE_HEAD else 1  # no header row without its delimiter
            unsplittable.append((first.start, group[:head][-1].stop))
            unsplittable += [(row.start, row.stop) for row in group[head:]]
        elif kind in (LineKind.TEXT, LineKind.HEADING):
            text = "".join(line.text + line.end for line in group)
            grows = kind is LineKind.HEADING or group is groups[-1]
            opened = marks if kind is LineKind.TEXT and first is lines[0] else ()
            parser = InlineParser(text, opened, is_growing=grows, has_spoilers=has_spoilers)
            unsplittable += [(first.start + start, first.start + end) for start, end in parser.unsplittable_spans]
    return unsplittable


def _is_within(at: int, unsplittable: Sequence[tuple[int, int]]) -> bool:
    """Return whether an index is after the start and before the end of a span."""
    before = bisect_left(unsplittable, (at, 0))
    return before > 0 and at < unsplittable[before - 1][1]


def cluster_starts(text: str, start: int, stop: int) -> Iterator[int]:
    """Yield the start indexes of the grapheme clusters in `text[start:stop]`."""
    for found in _CLUSTER.finditer(text, start, stop):
        yield found.start()


def is_cluster_start(text: str, at: int) -> bool:
    """Return whether a grapheme cluster starts at an index that white space precedes.

    White space and a following combining mark are one cluster.
    """
    return at == 0 or len(_CLUSTER.match(text, at - 1, at + 1)[0]) == 1
