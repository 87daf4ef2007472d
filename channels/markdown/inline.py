"""Inline structure of Markdown: code, links, tokens, HTML, spoilers and emphasis.

A token is a platform's syntax in angle brackets, such as a mention (`<@U1>`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from channels.markdown.blocks import COMMENT_END
from channels.markdown.emphasis import (
    RefusedEmphasis,
    is_beside_cjk,
    is_punctuation,
)
from channels.markdown.html import ENTITY, PAIRED_TAGS, TAG, opens_pair
from channels.markdown.links import LINK, UNFINISHED_LINK, Link
from channels.markdown.spans import InlineSpan
from channels.markdown.spoilers import SPOILER

_TOKEN = re.compile(
    rf"""
      (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<ticks>`+)
    | (?P<link>{LINK})
    | (?P<reference>\[[^\[\]\n`]{{1,500}}+\]\[[^\[\]\n`]{{0,200}}+\])
    | (?P<comment><!--)
    | (?P<anchor><a\s[^<>\n]{{1,500}}+>(?:(?!</a>)[^\n`]){{0,300}}+</a>)
    | (?P<angle><[!@#/A-Za-z:][^<>\s]{{0,2000}}+(?:[ ][^<>\n]{{0,300}}+)?+>)
    | (?P<address>https?://[^\s<>`*\[\]\\|]++(?:\|(?!\|)[^\s<>`*\[\]\\|]*+)*+)
    | (?P<entity>{ENTITY})
    | (?P<marks>\*+|_+|~+)
    | (?P<spoiler>\|\|)
    """,
    re.VERBOSE | re.DOTALL,
)

#: A token (such as `<@U1>`) or an HTML tag that is incomplete at the end of a growing text.
_UNFINISHED_TOKEN = re.compile(
    r"""<(?:
        [!@#:/][^<>\s|]{0,100}+(?:\|[^<>\n]{0,200}+)?+
      | [A-Za-z][A-Za-z0-9+.-]*+:[^<>\s|]{0,2000}+(?:\|[^<>\n]{0,200}+)?+
      | [A-Za-z][A-Za-z0-9-]{0,20}+/?
      | a\s[^<>\n]{0,500}+(?:>(?P<label>(?:(?!</a>)[^\n`]){0,300}+))?+
      | (?:img|p|div|span|details|font|table|t[rdh])\s[^<>\n]{0,500}+
    )?\Z""",
    re.VERBOSE,
)

_TICKS = re.compile(r"\\.|(?P<ticks>`+)", re.DOTALL)

#: Longest run of emphasis marks; a longer one is, for example, a blank to be filled in.
_MAX_EMPHASIS_MARKS = 3

#: Most ticks of code that may be carried over a split: three would open a code block there.
_MAX_TICKS = 2

#: Most characters of marks that are carried over a split.
_MAX_CARRIED_MARKS = 12


@dataclass(slots=True)
class _OpenMark:
    """Open mark of emphasis, code or a spoiler; its `start` is -1 in an earlier message."""

    text: str
    start: int = -1
    is_refused: bool = False


class InlineParser:
    """Parses the inline content of a Markdown paragraph, or of its part after a split.

    Args:
        marks: the emphasis, code and spoiler marks (such as `**`) that were open at the split, the outermost first.
        is_growing: whether more text may follow. One or two backticks without closing ones are then open code; else
            they are literal.

    Attributes:
        spans: the parts that no split may cut, in order: see `InlineSpan`.
        spoilers: the index of each spoiler mark.
        crossings: the index of each mark that closes emphasis within a spoiler that began in the emphasis, and the
            index after it.
        unfinished: the index of an incomplete link or token at the end of a growing text, and its readable label (empty
            for a token).
    """

    def __init__(
        self, text: str, marks: Sequence[str] = (), *, is_growing: bool = False, has_spoilers: bool = False
    ) -> None:
        self.spans: list[InlineSpan] = []
        self.spoilers: list[int] = []
        self.crossings: list[tuple[int, int]] = []
        self.refused: list[RefusedEmphasis] = []
        self.unfinished: tuple[int, str] | None = None
        self._text = text
        self._is_growing = is_growing
        self._has_spoilers = has_spoilers
        self._open_marks = [_OpenMark(mark) for mark in marks]
        self._unclosed_ticks: set[str] = set()
        at = self._parse_code(0, 0, self._open_marks.pop().text) if marks and marks[-1][0] == "`" else 0
        while found := self._next_token(at):
            at = self._parse_token(found)
        self.marks = tuple(mark.text for mark in self._open_marks)
        if is_growing and self.marks:
            self.refused += [
                RefusedEmphasis(mark.text, mark.start, None, refuses_opening=True, refuses_closing=False)
                for mark in self._open_marks
                if mark.is_refused
            ]

    @property
    def unsplittable_spans(self) -> Iterator[tuple[int, int]]:
        """Start and end index of each part that must not be split, in order."""
        for span in self.spans:
            yield span.start, span.end
        if self.unfinished:
            yield self.unfinished[0], len(self._text)

    def _next_token(self, at: int) -> re.Match[str] | None:
        found = _TOKEN.search(self._text, at)
        if self._is_growing and self.unfinished is None:
            stop = found.start() if found else len(self._text)
            self.unfinished = self._find_unfinished(at, stop)
            if self.unfinished:
                return None
        return found

    def _find_unfinished(self, start: int, stop: int) -> tuple[int, str] | None:
        for place in re.finditer(r"[<\[]", self._text[start:stop]):
            at = start + place.start()
            if place[0] == "<":
                if token := _UNFINISHED_TOKEN.match(self._text, at):
                    return at, token["label"] or ""
            else:
                at -= at > 0 and self._text[at - 1] == "!"
                if found := UNFINISHED_LINK.match(self._text, at):
                    return at, found["label"]
        return None

    def _parse_token(self, found: re.Match[str]) -> int:
        """Add a match of `_TOKEN` to `spans` or to the open marks; return where parsing continues."""
        start, end = found.span()
        match found.lastgroup:
            case "ticks":
                return self._parse_code(start, end, found[0])
            case "marks":
                self._parse_emphasis(start, found[0])
            case "comment":
                return self._parse_comment(start, end)
            case "spoiler":
                return self._parse_spoiler(start, end)
            case "escape" | "reference" | "anchor" | "angle" | "address" | "entity":
                self.spans.append(InlineSpan(start, end))
                self._parse_tag(start, end)
            case _ if self._is_cut_by_code(found):
                return found.start("label")
            case _:
                target = found["target"].removeprefix("<").removesuffix(">")
                link = Link(found["label"], target, found[0])
                self.spans.append(InlineSpan(start, end, link=link))
        return end

    def _is_cut_by_code(self, link: re.Match[str]) -> bool:
        """Return whether code starts in the label of a link and ends after it (CommonMark, section 6.3)."""
        at, stop = link.span("label")
        while found := _TICKS.search(self._text, at, stop):
            at = found.end()
            ticks = found["ticks"]
            if not ticks:
                continue
            closing = re.compile(rf"(?<!`){ticks}(?!`)").search(self._text, at)
            if closing is None and self._is_growing and len(ticks) <= _MAX_TICKS:
                return True
            if closing and closing.end() > stop:
                return True
            at = closing.end() if closing else at
        return False

    def _parse_code(self, start: int, inside: int, ticks: str) -> int:
        """Add the code span that begins with these backticks to `spans`; return where parsing continues.

        Without closing backticks, the code goes on to the end of the paragraph, and its backticks are open marks. That
        holds while more text may follow, or if the code began in an earlier message (`inside` is then `start`). Else
        the backticks are literal text: they become a span of their own, which no split may cut.
        """
        if ticks not in self._unclosed_ticks:
            if found := re.compile(rf"(?<!`){ticks}(?!`)").search(self._text, inside):
                self.spans.append(InlineSpan(start, found.end(), ticks=ticks))
                return found.end()
            self._unclosed_ticks.add(ticks)
        if inside == start or (self._is_growing and len(ticks) <= _MAX_TICKS):
            self.spans.append(InlineSpan(start, len(self._text), ticks=ticks, is_closed=False))
            self._open_marks.append(_OpenMark(ticks, start))
            return len(self._text)
        self.spans.append(InlineSpan(start, inside))  # the ticks are not split
        return inside

    def _parse_comment(self, start: int, end: int) -> int:
        stop = self._text.find(COMMENT_END, start + 2)
        if stop < 0 and self._is_growing:
            self.unfinished = self.unfinished or (start, "")
            return len(self._text)
        end = max(end, stop + len(COMMENT_END))
        self.spans.append(InlineSpan(start, end))
        return end

    def _parse_tag(self, start: int, end: int) -> None:
        """Add the opening tag of a pair, such as `<b>`, to the open marks, or remove it for the closing tag."""
        tag = TAG.fullmatch(self._text, start, end)
        if tag is None or (name := PAIRED_TAGS.get(tag["name"].lower())) is None:
            return
        mark = f"<{name}>"
        texts = [open_mark.text for open_mark in self._open_marks]
        if not tag["slash"]:
            if sum(map(len, texts)) + len(mark) <= _MAX_CARRIED_MARKS and opens_pair(self._text, tag):
                self._open_marks.append(_OpenMark(mark, start))
        elif mark in texts:
            at = len(texts) - 1 - texts[::-1].index(mark)
            self._open_marks[at:] = [spoiler for spoiler in self._open_marks[at:] if spoiler.text == SPOILER]

    def _parse_emphasis(self, start: int, marks: str) -> None:
        sign = marks[0]
        size = len(marks)
        opens, closes = self._flanks(start, start + size)
        if size > _MAX_EMPHASIS_MARKS or (sign == "~" and size != 2):
            return
        inner = self._open_marks[-1] if self._open_marks else None
        if not closes and inner and inner.text == marks and self._is_refused(marks, start - 1, start + size):
            self._close_refused(self._open_marks.pop(), start, refuses_closing=True)
            return
        while closes and size and (at := self._innermost_open(sign)) is not None:
            opened = self._open_marks[at]
            if opened.is_refused and opened.text == marks:
                self._close_refused(opened, start, refuses_closing=False)
            count = min(len(opened.text), size)
            spoilers = [mark for mark in self._open_marks[at:] if mark.text == SPOILER] if self._has_spoilers else []
            if spoilers:
                self.crossings.append((start, start + len(marks)))
            remainder = opened.text[count:]
            self._open_marks[at:] = [*([_OpenMark(remainder, opened.start)] if remainder else []), *spoilers]
            size -= count
        is_refused = not opens and size == len(marks) and self._is_refused(marks, start + size, start - 1)
        open_size = sum(len(mark.text) for mark in self._open_marks)
        if (opens or is_refused) and size and open_size + size <= _MAX_CARRIED_MARKS:
            self._open_marks.append(_OpenMark(sign * size, start, is_refused))

    def _is_refused(self, marks: str, sign_at: int, letter_at: int) -> bool:
        is_inside = min(sign_at, letter_at) >= 0 and max(sign_at, letter_at) < len(self._text)
        return is_inside and is_beside_cjk(marks, self._text[sign_at], self._text[letter_at])

    def _close_refused(self, opened: _OpenMark, stop: int, *, refuses_closing: bool) -> None:
        self.refused.append(
            RefusedEmphasis(
                opened.text, opened.start, stop, refuses_opening=opened.is_refused, refuses_closing=refuses_closing
            )
        )

    def _parse_spoiler(self, start: int, end: int) -> int:
        """Add a spoiler mark to `spoilers`; it closes the open spoiler, or opens one."""
        if not self._has_spoilers:
            return end
        self.spans.append(InlineSpan(start, end))
        self.spoilers.append(start)
        marks = [mark.text for mark in self._open_marks]
        if SPOILER in marks:
            del self._open_marks[marks.index(SPOILER) :]
            return end
        self._open_marks.append(_OpenMark(SPOILER, start))
        return end + self._text.startswith("|", end)  # a spoiler has at least one character

    def _innermost_open(self, sign: str) -> int | None:
        indexes = reversed(range(len(self._open_marks)))
        return next((index for index in indexes if self._open_marks[index].text[0] == sign), None)

    def _flanks(self, start: int, end: int) -> tuple[bool, bool]:
        """Return whether a delimiter run may open and may close emphasis (CommonMark, section 6.2)."""
        before = self._text[start - 1] if start else " "
        after = self._text[end] if end < len(self._text) else " "
        follows_space = before.isspace()
        precedes_space = after.isspace()
        follows_sign = not follows_space and is_punctuation(before)
        precedes_sign = not precedes_space and is_punctuation(after)
        opens = not precedes_space and (not precedes_sign or follows_space or follows_sign)
        closes = not follows_space and (not follows_sign or precedes_space or precedes_sign)
        if self._text[start] == "_":
            return opens and (not closes or follows_sign), closes and (not opens or precedes_sign)
        return opens, closes
