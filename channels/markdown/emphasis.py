"""Emphasis beside punctuation of Chinese, Japanese and Korean text.

CommonMark (section 6.2) takes marks between punctuation and a letter for literal text, as in `**注意。**请`. Writers of
these languages put no space there. The rules here are those of github.com/tats-u/markdown-cjk-friendly: such marks are
emphasis. For a platform that follows CommonMark, the punctuation is moved out of the marks: `**注意**。请`.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from channels.markdown.spans import InlineSpan

_MARKS = "*_~"


@dataclass(frozen=True, slots=True)
class RefusedEmphasis:
    """Emphasis that CommonMark takes for literal text.

    Attributes:
        start: the index of the opening mark in the paragraph; -1 if it is in an earlier message.
        stop: the index of the closing mark; None if more text may follow.
    """

    mark: str
    start: int
    stop: int | None
    refuses_opening: bool
    refuses_closing: bool


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replacement of `text[start:end]` in a paragraph."""

    start: int
    end: int
    new: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Return a text with some edits, which do not overlap; insertions at one index are applied in order."""
    parts = list[str]()
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += text[at : edit.start], edit.new
        at = edit.end
    return "".join([*parts, text[at:]])


def is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation or a symbol, as CommonMark 0.31 defines it."""
    return not character.isalnum() and unicodedata.category(character)[0] in "PS"


def is_beside_cjk(mark: str, sign: str, letter: str) -> bool:
    """Return whether marks between a punctuation sign and a letter are emphasis, which CommonMark refuses.

    The letter must be Chinese, Japanese or Korean. Of marks of two and more characters, the sign may be instead: a
    single `*` may multiply, as in `5*「n」`.
    """
    return is_punctuation(sign) and (_is_wide(letter) or (len(mark) > 1 and _is_wide(sign)))


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WFH"


def move_marks(text: str, spans: Iterable[InlineSpan], refused: Iterable[RefusedEmphasis]) -> Iterator[TextEdit]:
    """Yield the edits that make emphasis of marks that CommonMark refuses.

    Punctuation and code at the end of the emphasis are moved out of it; of a link, the label becomes emphasis. If
    nothing else is emphasized, the marks are removed.
    """
    starts = {span.start: span for span in spans}
    ends = {span.end: span for span in starts.values()}
    for pair in refused:
        first = pair.start + len(pair.mark) if pair.start >= 0 else 0
        last = len(text) if pair.stop is None else pair.stop
        start = _find_start(text, starts, first, last) if pair.refuses_opening else first
        end = find_end(text, ends, first, last) if pair.refuses_closing else last
        is_empty = not text[start:end].strip()
        mark = "" if is_empty else pair.mark
        if pair.start >= 0 and (is_empty or pair.refuses_opening):
            yield TextEdit(pair.start, first, "")
            yield TextEdit(start, start, mark)
        if pair.stop is not None and (is_empty or pair.refuses_closing):
            yield TextEdit(end, end, mark)
            yield TextEdit(last, last + len(pair.mark), "")
        opening = starts.get(first) if pair.refuses_opening else None
        closing = ends.get(last) if pair.refuses_closing else None
        for span in {opening, closing}:
            if span is not None:
                yield from _edit_moved(text, span, pair.mark)


def _edit_moved(text: str, span: InlineSpan, mark: str) -> Iterator[TextEdit]:
    """Yield the edits of a link or an address that is moved out of emphasis."""
    if span.link and not set(_MARKS) & set(span.link.label):
        start = text.index("[", span.start) + 1
        for at in (start, start + len(span.link.label)):
            yield TextEdit(at, at, mark)
    elif text.startswith("http", span.start):  # the text after it would be part of it
        yield TextEdit(span.start, span.start, "<")
        yield TextEdit(span.end, span.end, ">")


def _find_start(text: str, starts: Mapping[int, InlineSpan], first: int, last: int) -> int:
    """Return the index after the sign, code or link at the start of emphasis; `last` if marks are there."""
    sign_end = last if text[first : first + 1] in _MARKS else first + 1
    at = starts[first].end if first in starts else sign_end
    while at < last and text[at].isspace():
        at += 1
    return min(at, last)


def find_end(text: str, ends: Mapping[int, InlineSpan], first: int, last: int) -> int:
    """Return the index of the punctuation, code or link at the end of emphasis; `first` if marks are there.

    Closing brackets stay in the emphasis if other punctuation follows them.
    """
    sign_start = first if text[last - 1] in _MARKS else last - 1
    at = ends[last].start if last in ends else sign_start
    while at > first and at not in ends and (text[at - 1].isspace() or _is_final_sign(text[at - 1])):
        at -= 1
    return max(at, first)


def _is_final_sign(character: str) -> bool:
    return character not in _MARKS and unicodedata.category(character) == "Po"
