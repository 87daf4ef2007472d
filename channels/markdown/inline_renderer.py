"""Rendering of the inline content of Markdown in a platform's dialect, also of a text that grows."""

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from channels.markdown.blocks import LINE_END
from channels.markdown.dialect import Dialect
from channels.markdown.emphasis import (
    RefusedEmphasis,
    TextEdit,
    apply_edits,
    find_end,
    is_punctuation,
    move_marks,
)
from channels.markdown.html import convert_html
from channels.markdown.inline import InlineParser
from channels.markdown.links import Link, show_target
from channels.markdown.spans import InlineSpan
from channels.markdown.spoilers import ESCAPED_SPOILER, SPOILER, UNFINISHED_SPOILER, break_spoilers

#: An entity, or an address in angle brackets, at the end of a growing text: the next characters may change it.
_UNFINISHED_ENTITY = re.compile(r"&#?[A-Za-z0-9]{0,32}\Z")
_LAST_TOKEN = re.compile(r"<[^\s<>]++>\Z")

#: Emphasis or code marks at the end of a growing text: the next characters may be more marks.
_UNFINISHED_MARKS = re.compile(r"(?<![*_~`\\])[*_~`\\]++\Z")

_EMPHASIS = re.compile(r"[*_~]")

#: Delimiter of the placeholders for code: a lone surrogate occurs in no text.
_SURROGATE = "\ud800"
_CODE_PLACEHOLDER = re.compile(rf"{_SURROGATE}(\d+){_SURROGATE}")

#: Ticks at the end of open code, which would merge with the closing ticks.
_CODE_END = re.compile(r"(?<![`\s])[`\s]*`\s*\Z")

#: Characters that would open a block without the bracket before them.
_OPENERS = ("`", "~", "#", ">", "|", "-", "+", "*")


@dataclass(frozen=True, slots=True)
class RenderedInline:
    """Rendered paragraph with the open marks closed, and these marks, the outermost first."""

    text: str
    marks: tuple[str, ...]


def render_inline(text: str, dialect: Dialect, marks: Sequence[str] = (), *, is_cut: bool = False) -> RenderedInline:
    """Render the inline Markdown of a paragraph in a platform's dialect.

    The `marks` that were open at a split before the text are opened again. If the paragraph `is_cut`, the open marks
    are closed at its end, and returned; else only those of `marks`, and none is returned. A spoiler, which may span
    paragraphs, is always closed and returned.
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
    """
    edits = [TextEdit(start, end, "") for start, end in parser.crossings]
    first = parser.spoilers[0]
    last = parser.spoilers[-1]
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
    result = ""
    at = 0
    spans = InlineParser(text).spans
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
    parser = InlineParser(text, marks, is_growing=True)
    last = len(text.rstrip())
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
        return token[1:-1].removeprefix("mailto:")

    def escape_sign(self, sign: str) -> str:
        return sign

    def render_prose(self, text: str) -> str:
        return " ".join(convert_html(text, self).split("\n"))


_PLAIN_TEXT = _PlainText()
_MARKUP_SIGN = re.compile(r"[\\`*_~\[<&]")
_PLAIN_SIGN = re.compile(  # an underscore within a word is text
    r"(?P<address>https?://[^\s<>`*\[\]\\|]+)|[\\`*~\[\]<&|]|(?<![^\W_])_|_(?![^\W_])"
)


def plain_text(text: str) -> str:
    """Return inline Markdown as plain text, with the URLs of links in parentheses."""
    return _join_parts(_plain_parts(text), _PLAIN_TEXT) if _MARKUP_SIGN.search(text) else text


def escape_markdown(text: str) -> str:
    """Return plain text as Markdown that shows it, for the middle of a line; addresses stay links."""
    return _PLAIN_SIGN.sub(lambda found: found[0] if found["address"] else f"\\{found[0]}", text)


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
    """Yield the parts of a paragraph, with code and links rendered, and whether each is inline code.

    Code and links in a spoiler (`is_hidden` if it is open at the start) must not end it.
    """
    at = 0
    for span in spans:
        end = min(span.end, len(text))
        yield False, text[at : span.start]
        if span.link:
            before, after = dialect.render_link(span.link)
            label = span.link.label
            if is_hidden:
                label = label.replace(SPOILER, ESCAPED_SPOILER)
                after = after.replace(SPOILER, "%7C%7C")
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
    """Return the joined parts of a paragraph, with all text outside of code rendered."""
    prose = ""
    codes = list[str]()
    for is_code, part in parts:
        prose += f"{_SURROGATE}{len(codes)}{_SURROGATE}" if is_code else part
        if is_code:
            codes.append(part)
    return _CODE_PLACEHOLDER.sub(lambda place: codes[int(place[1])], dialect.render_prose(prose))


def _count_common_marks(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of outermost marks of two lists that begin with the same characters."""
    return sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(one, other, strict=False)))


def _remove_marks(text: str) -> str:
    return re.sub(r"\*{1,3}|~~|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)", "", text)
