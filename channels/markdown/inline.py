"""Inline structure of Markdown (code, links, tokens, emphasis), and its rendering.

A token is a platform's syntax in angle brackets, such as a mention (`<@U1>`).
"""

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from channels.markdown.blocks import COMMENT_END, LINE_END
from channels.markdown.dialect import Dialect
from channels.markdown.emphasis import (
    RefusedEmphasis,
    TextEdit,
    apply_edits,
    find_end,
    is_beside_cjk,
    is_punctuation,
    move_marks,
)
from channels.markdown.html import ENTITY, PAIRED_TAGS, TAG, convert_html, opens_pair
from channels.markdown.links import LINK, UNFINISHED_LINK, Link, show_target
from channels.markdown.spoilers import ESCAPED_SPOILER, SPOILER, UNFINISHED_SPOILER, break_spoilers

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

#: An entity, or an address in angle brackets, at the end of a growing text: the next characters may change it.
_UNFINISHED_ENTITY = re.compile(r"&#?[A-Za-z0-9]{0,32}\Z")
_LAST_TOKEN = re.compile(r"<[^\s<>]++>\Z")

#: Emphasis or code marks at the end of a growing text: the next characters may be more marks.
_UNFINISHED_MARKS = re.compile(r"(?<![*_~`\\])[*_~`\\]++\Z")

_EMPHASIS = re.compile(r"[*_~]")

_TICKS = re.compile(r"\\.|(?P<ticks>`+)", re.DOTALL)

#: Delimiter of the placeholders for code: a lone surrogate occurs in no text.
_SURROGATE = "\ud800"
_CODE_PLACEHOLDER = re.compile(rf"{_SURROGATE}(\d+){_SURROGATE}")

#: Ticks at the end of open code, which would merge with the closing ticks.
_CODE_END = re.compile(r"(?<![`\s])[`\s]*`\s*\Z")

#: Characters that would open a block without the bracket before them.
_OPENERS = ("`", "~", "#", ">", "|", "-", "+", "*")

#: Longest run of emphasis marks; a longer one is, for example, a blank to be filled in.
_MAX_EMPHASIS_MARKS = 3

#: Most ticks of code that may be carried over a split: three would open a code block there.
_MAX_TICKS = 2

#: Most characters of marks that are carried over a split.
_MAX_CARRIED_MARKS = 12


@dataclass(frozen=True, slots=True)
class InlineSpan:
    """Part of a paragraph that no split may cut, such as code or a link.

    The others are URLs, references (`[label][name]`), tokens (such as `<@U1>`), backslash escapes and literal
    backticks.

    Attributes:
        start, end: the index in the paragraph of the span's first character, and the index after its last.
        ticks: the opening backticks of code; empty for others.
        link: the link or image; None for others.
        is_closed: whether the code has closing backticks; True for others.
    """

    start: int
    end: int
    ticks: str = ""
    link: Link | None = None
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class RenderedInline:
    """Rendered paragraph, and the marks that are open at its end.

    Attributes:
        text: the paragraph in the platform's dialect, with the open marks closed.
        marks: the open emphasis, code and spoiler marks, such as `**`, the outermost first.
    """

    text: str
    marks: tuple[str, ...]


@dataclass(slots=True)
class _OpenMark:
    """Open mark of emphasis, code or a spoiler.

    Attributes:
        start: the index in the paragraph; -1 in an earlier message.
        is_refused: whether CommonMark takes the mark for literal text.
    """

    text: str
    start: int = -1
    is_refused: bool = False


class InlineParser:
    """Parses the inline content of a Markdown paragraph.

    Args:
        text: the paragraph, or its part after a split.
        marks: the emphasis, code and spoiler marks (such as `**`) that were open at the split, the outermost first.
        is_growing: whether more text may follow. One or two backticks without closing ones are then open code; else
            they are literal.
        has_spoilers: whether `||` hides text.

    Attributes:
        spans: the parts that no split may cut, in order: see `InlineSpan`.
        marks: the emphasis, code and spoiler marks that are open at the end, the outermost first.
        spoilers: the index of each spoiler mark.
        crossings: the index of each mark that closes emphasis within a spoiler that began in the emphasis, and the
            index after it.
        refused: the emphasis that CommonMark takes for literal text.
        unfinished: the index of an incomplete link or token at the end of a growing text, and its readable label (empty
            for a token); None without one.
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
        """Start and end index of each part that must not be split, in order.

        The parts are the `spans`, and the `unfinished` link or token up to the end of the text.
        """
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
        """Add a match of `_TOKEN` to `spans` or to the open marks.

        Returns:
            The position in the paragraph from which parsing continues.
        """
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
        """Return whether code starts in the label of a link and ends after it.

        Code takes precedence over links (CommonMark, section 6.3).
        """
        at, stop = link.span("label")
        while found := _TICKS.search(self._text, at, stop):
            at, ticks = found.end(), found["ticks"]
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
        """Add the code span that begins with these backticks to `spans`.

        Without closing backticks, the code goes on to the end of the paragraph, and its backticks are open marks. That
        holds while more text may follow, or if the code began in an earlier message. Else the backticks are literal
        text: they become a span of their own, which no split may cut.

        Args:
            start: the position of the opening backticks.
            inside: the position after the opening backticks; `start` if these are in an earlier message.
            ticks: the opening backticks.

        Returns:
            The position in the paragraph from which parsing continues.
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
        sign, size = marks[0], len(marks)
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
        """Add a spoiler mark to `spoilers`; it closes the open spoiler, or opens one.

        Returns:
            The position in the paragraph from which parsing continues.
        """
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
        """Return whether a delimiter run (`*`, `_`, `~`) may open and may close emphasis.

        CommonMark, section 6.2.

        Args:
            start, end: the index of the run in the paragraph, and the index after it.

        Returns:
            True if it may open emphasis; True if it may close emphasis.
        """
        before = self._text[start - 1] if start else " "
        after = self._text[end] if end < len(self._text) else " "
        follows_space, precedes_space = before.isspace(), after.isspace()
        follows_sign = not follows_space and is_punctuation(before)
        precedes_sign = not precedes_space and is_punctuation(after)
        opens = not precedes_space and (not precedes_sign or follows_space or follows_sign)
        closes = not follows_space and (not follows_sign or precedes_space or precedes_sign)
        if self._text[start] == "_":
            return opens and (not closes or follows_sign), closes and (not opens or precedes_sign)
        return opens, closes


def render_inline(text: str, dialect: Dialect, marks: Sequence[str] = (), *, is_cut: bool = False) -> RenderedInline:
    """Render the inline Markdown of a paragraph in a platform's dialect.

    A blank text becomes an empty one, with `marks` still open.

    Args:
        marks: the emphasis and code marks that were open at a split before `text`; they are opened again.
        is_cut: whether the paragraph continues after `text`. Open marks are then closed at the end, and returned; else
            only those of `marks`, and none is returned. A spoiler, which may span paragraphs, is always closed and
            returned.
    """
    if not text.strip():
        return RenderedInline("", tuple(marks))
    if text.startswith("~") and not "".join(marks).strip("~"):  # three or more would open a code block
        marks = ()
    parser = InlineParser(text, marks, is_growing=is_cut, has_spoilers=dialect.has_spoilers)
    if parser.refused and dialect.moves_marks:
        marks = _without_empty(marks, parser.refused, text)
        text = apply_edits(text, move_marks(text, parser.spans, parser.refused))
        parser = InlineParser(text, marks, is_growing=is_cut)
    closed_count = len(parser.marks) if is_cut else _count_common_marks(parser.marks, marks)
    open_marks = tuple(mark for at, mark in enumerate(parser.marks) if at < closed_count or mark == SPOILER)
    closing: Sequence[str] = closing_marks(open_marks)
    if parser.spoilers:
        text, marks, closing = _remove_empty_spoilers(text, parser, marks, closing)
        if not text.strip() and not marks:
            return RenderedInline("", open_marks)
        parser = InlineParser(text, marks, is_growing=is_cut, has_spoilers=True)
    body = text.rstrip()
    is_in_code = body.endswith("`") and bool(closing) and closing[0].startswith("`")
    parts = [
        *_mark_parts(marks),
        *_render_parts(body, parser.spans, dialect, is_hidden=SPOILER in marks),
        *([(True, " ")] if is_in_code else []),
        *_mark_parts(closing),
        (False, text[len(body) :]),
    ]
    rendered = _join_parts(parts, dialect)
    open_marks = tuple(mark for mark in open_marks if is_cut or mark == SPOILER)
    return RenderedInline(break_unknown_links(rendered, dialect), open_marks)


def _remove_empty_spoilers(
    text: str, parser: InlineParser, marks: Sequence[str], closing: Sequence[str]
) -> tuple[str, Sequence[str], Sequence[str]]:
    """Return a paragraph in which each spoiler hides at least one character, and no emphasis ends within it.

    Discord: emphasis that begins before a spoiler and ends within it would end the spoiler.

    Args:
        text: the paragraph.
        parser: the parser of the paragraph.
        marks: the marks to open at the start.
        closing: the marks to close at the end, the innermost first.

    Returns:
        The paragraph; the marks to open; the marks to close.
    """
    edits = [TextEdit(start, end, "") for start, end in parser.crossings]
    first, last = parser.spoilers[0], parser.spoilers[-1]
    if marks and marks[-1] == SPOILER and not text[:first].strip():
        edits.append(TextEdit(0, first + len(SPOILER), ""))
        marks = marks[:-1]
    if closing and closing[0] == SPOILER and not text[last + len(SPOILER) :].strip():
        edits.append(TextEdit(last, last + len(SPOILER), ""))
        closing = closing[1:]
    return apply_edits(text, edits), marks, closing


def _without_empty(marks: Sequence[str], refused: Iterable[RefusedEmphasis], text: str) -> Sequence[str]:
    """Return the marks that were open at a split, without those that have only punctuation after it."""
    empty = [pair.mark for pair in refused if pair.start < 0 and not any(map(str.isalnum, text[: pair.stop]))]
    return marks[: len(marks) - len(empty)]


def break_unknown_links(text: str, dialect: Dialect) -> str:
    """Return Markdown with a backslash in each text that only a platform makes a link.

    Platforms differ in their rules for links. The backslash follows the `]` of a `[label](target)` that the parser does
    not take for a link, and of a `[name]: target`. Links whose label looks like another URL get it too.
    """
    if not any(f"]{sign}" in text for sign in dialect.link_openers):
        return text
    result, at, spans = "", 0, InlineParser(text).spans
    codes = [text[span.start : span.end] for span in spans if span.ticks]
    is_sure = not any(LINE_END.search(code) for code in codes)  # code over several lines may end with its block
    for span in spans:
        if span.ticks:
            inside = text[span.start + len(span.ticks) : span.end]
            result += _break_links(text[at : span.start], dialect) + span.ticks
            result += inside if is_sure else break_unknown_links(inside, dialect)
        elif span.link and not span.link.is_disguised:
            label = text.index("[", span.start) + 1
            target = label + len(span.link.label) + len("](")
            result += _break_links(text[at:label], dialect) + break_unknown_links(span.link.label, dialect)
            result += "](" + _break_links(text[target : span.end], dialect)
        else:
            continue
        at = span.end
    return result + _break_links(text[at:], dialect)


def remove_unfinished(text: str, marks: Sequence[str] = (), *, has_spoilers: bool = False) -> str:
    """Return a growing paragraph without an end that cannot be rendered yet.

    Such an end is an incomplete token (such as `<@U1`), or backslashes, emphasis marks or opening backticks at the very
    end. Of an incomplete link, the label stays, unless its first character could open a block.

    Args:
        marks: the emphasis and code marks that are open at the start of the text.
    """
    parser = InlineParser(text, marks, is_growing=True, has_spoilers=has_spoilers)
    if parser.unfinished:
        start, label = parser.unfinished
        if SPOILER in parser.marks:
            label = label.replace(SPOILER, ESCAPED_SPOILER)
        text = text[:start] + (label if not label.startswith(_OPENERS) else "")
        parser = InlineParser(text, marks, is_growing=True)
    last = parser.spans[-1] if parser.spans else None
    if last and last.ticks and last.end == len(text):
        if last.is_closed or text[last.start :].strip("`").strip():
            return text if last.is_closed else _CODE_END.sub("", text)
        text = text[: last.start]
    text = _UNFINISHED_MARKS.sub("", _UNFINISHED_ENTITY.sub("", text))
    return _UNFINISHED_MARKS.sub("", UNFINISHED_SPOILER.sub("", text)) if has_spoilers else text


def stable_part(text: str, dialect: Dialect, marks: Sequence[str] = ()) -> str:
    """Return the start of a growing paragraph whose rendering is likely final.

    An incomplete link or token at the end is left out with its label, and `remove_unfinished` is applied to the rest.
    Open emphasis and code are included, as if their closing marks followed; if none follow, their rendering changes.

    Args:
        marks: the emphasis and code marks that are open at the start of the text.
    """
    unfinished = InlineParser(text, marks, is_growing=True).unfinished
    if unfinished:
        text = text[: unfinished[0]]
    elif text.endswith(">") and (token := _LAST_TOKEN.search(text)):  # its form depends on the next character
        text = text[: token.start()]
    text = remove_unfinished(text, marks, has_spoilers=dialect.has_spoilers)
    if not dialect.moves_marks or not (marks or _EMPHASIS.search(text)):
        return text
    return _UNFINISHED_MARKS.sub("", text[: _movable_end(text, marks)])


def _movable_end(text: str, marks: Sequence[str]) -> int:
    """Return the index of the punctuation, code or link that may be moved out of open emphasis at the end of a text."""
    parser, last = InlineParser(text, marks, is_growing=True), len(text.rstrip())
    ends = {min(span.end, last): span for span in parser.spans}
    is_movable = (
        last and any(mark[0] != "`" for mark in parser.marks) and (last in ends or is_punctuation(text[last - 1]))
    )
    return find_end(text, ends, 0, last) if is_movable else len(text)


class _PlainText(Dialect):
    """Dialect without markup."""

    html_marks: Mapping[str, str] = {}
    entity_signs = string.punctuation

    def render_link(self, link: Link) -> tuple[str, str]:
        return ("", "") if link.label == link.target else show_target(link)

    def render_autolink(self, token: str, *, is_last: bool) -> str:
        del is_last
        return token[1:-1].removeprefix("mailto:")

    def escape_sign(self, sign: str) -> str:
        return sign

    def render_prose(self, text: str) -> str:
        return " ".join(convert_html(text, self).split("\n"))


_PLAIN_TEXT = _PlainText()
_MARKUP_SIGN = re.compile(r"[\\`*_~\[<&]")


def plain_text(text: str) -> str:
    """Return inline Markdown as plain text, with the URLs of links in parentheses.

    A link whose label is its URL is shown once.
    """
    return _join_parts(_plain_parts(text), _PLAIN_TEXT) if _MARKUP_SIGN.search(text) else text


def _plain_parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a paragraph without code, link and emphasis marks: see `_render_parts`."""
    at = 0
    for span in InlineParser(text).spans:
        yield False, _remove_marks(text[at : span.start])
        if span.link:
            yield from _plain_parts(span.link.label)
            yield False, _PLAIN_TEXT.render_link(span.link)[1]
        elif span.ticks:
            yield True, text[span.start : span.end].strip("`").strip()
        else:
            yield False, text[span.start : span.end]
        at = span.end
    yield False, _remove_marks(text[at:])


def _break_links(text: str, dialect: Dialect) -> str:
    return re.sub(rf"\](?=[{dialect.link_openers}])", r"]\\", text)


def closing_marks(marks: Sequence[str]) -> list[str]:
    """Return the marks that close open marks, in order."""
    return [mark.replace("<", "</") for mark in reversed(marks)]


def _mark_parts(marks: Sequence[str]) -> Iterator[tuple[bool, str]]:
    for mark in marks:
        yield mark.startswith("`"), mark


def _render_parts(
    text: str, spans: Sequence[InlineSpan], dialect: Dialect, *, is_hidden: bool = False
) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a paragraph in order, with code and links rendered.

    Emphasis and other inline Markdown are not rendered yet.

    Args:
        spans: the spans of the text: see `InlineParser.spans`.
        is_hidden: whether a spoiler is open at the start; code and links in a spoiler must not end it.

    Returns:
        Pairs: whether the part is inline code, and its text.
    """
    at = 0
    for span in spans:
        end = min(span.end, len(text))
        yield False, text[at : span.start]
        if span.link:
            before, after = dialect.render_link(span.link)
            label = span.link.label
            if is_hidden:
                label, after = label.replace(SPOILER, ESCAPED_SPOILER), after.replace(SPOILER, "%7C%7C")
            yield False, before
            yield from _render_parts(label, InlineParser(label).spans, dialect)
            yield False, after
        elif span.ticks:
            code = dialect.render_code(text[span.start : end])
            yield True, break_spoilers(code) if is_hidden else code
        else:
            is_hidden ^= text[span.start : end] == SPOILER
            yield False, text[span.start : end]
        at = end
    yield False, text[at:]


def _join_parts(parts: Iterable[tuple[bool, str]], dialect: Dialect) -> str:
    """Return the joined parts of a paragraph, with all text outside of code rendered.

    Args:
        parts: True with rendered code, or False with other text: see `_render_parts`.
    """
    prose, codes = "", list[str]()
    for is_code, part in parts:
        prose += f"{_SURROGATE}{len(codes)}{_SURROGATE}" if is_code else part
        if is_code:
            codes.append(part)
    return _CODE_PLACEHOLDER.sub(lambda place: codes[int(place[1])], dialect.render_prose(prose))


def _count_common_marks(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of outermost marks that two lists of open marks share.

    Two marks are the same if they begin with the same character.
    """
    return sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(one, other, strict=False)))


def _remove_marks(text: str) -> str:
    return re.sub(r"\*{1,3}|~~|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)", "", text)
