"""Markdown within a paragraph: code, links, tokens and emphasis; what of it is open, and how it is shown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from channels.markdown.dialect import Dialect
from channels.markdown.links import Link

_LABEL = r"!?\[(?P<label>(?:[^\[\]\\]|\\.|\[[^\[\]]{0,200}+\](?:\([^()\s]{0,2000}+\))?+){0,500}+)"
_TARGET = r"(?P<target><[^<>\n]*+>|[^\s()]*+(?:\([^\s()]*+\)[^\s()]*+)*+)"
_TITLE = r"(?:\s+(?:\"[^\"]*+\"|'[^']*+'))?+"

_TOKEN = re.compile(
    rf"""
      (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<ticks>`+)
    | (?P<link>{_LABEL}\]\(\s*+{_TARGET}{_TITLE}\s*+\))
    | (?P<reference>\[[^\[\]\n]{{1,500}}+\]\[[^\[\]\n]{{0,200}}+\])
    | (?P<angle><[!@#/A-Za-z:][^<>\s]{{0,2000}}+(?:[ ][^<>\n]{{0,300}}+)?+>)
    | (?P<address>https?://[^\s<>`*\[\]]++)
    | (?P<marks>\*+|_+|~+)
    """,
    re.VERBOSE | re.DOTALL,
)

#: At the end of a text that still grows: what may become a link, with its label; or a token, or a tag.
_LINK_BEGUN = re.compile(
    rf"{_LABEL}(?:\](?:\(\s*+<?[^\s()<>]*+(?:\([^\s()]*+\)?+[^\s()]*+)*+>?(?:\s+[\"'][^\"'\n]{{0,200}}+[\"']?)?+\s*+)?)?\Z",
    re.DOTALL,
)
_TOKEN_BEGUN = re.compile(
    r"""<(?:
        [!@#:/][^<>\s|]{0,100}+(?:\|[^<>\n]{0,200}+)?+
      | [A-Za-z][A-Za-z0-9+.-]*+:[^<>\s|]{0,2000}+(?:\|[^<>\n]{0,200}+)?+
      | [A-Za-z][A-Za-z0-9-]{0,20}+/?
      | (?:a|img|p|div|span|details|font|table|t[rdh])\s[^<>\n]{0,500}+
    )?\Z""",
    re.VERBOSE,
)

#: Marks at the end of a text that may become others.
_MARKS_BEGUN = re.compile(r"[*_~`\\]+\Z")

#: What would open a block, if the bracket before it were left out.
_OPENERS = ("`", "~", "#", ">", "|", "-", "+", "*")

#: Marks of emphasis that are longer mean something else, such as a line to be filled in.
_MOST_MARKS = 3

#: More ticks would open a block of code at the head of a message.
_MOST_TICKS = 2

#: Marks that are carried over a cut, all together, in characters.
_MOST_CARRIED = 12


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a paragraph that is not emphasis and has a form of its own."""

    start: int
    end: int
    ticks: str = ""
    link: Link | None = None
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """A paragraph, or what there is of it, as it is shown, and the marks that are open where it ends."""

    text: str
    marks: tuple[str, ...]


class Scan:
    """What a paragraph is made of.

    Args:
        text: the paragraph, or its part behind a cut.
        marks: what was open at the cut.
        grows: whether more may follow, so that what is not closed is open.

    Attributes:
        spans: code, links, tokens and addresses, in order.
        marks: what is open at the end.
        begun: where a link or a token begins that is not complete, and what of it can be read.
    """

    def __init__(self, text: str, marks: Sequence[str] = (), *, grows: bool = False) -> None:
        self.spans: list[Span] = []
        self.begun: tuple[int, str] | None = None
        self._text = text
        self._grows = grows
        self._open = [*marks]
        self._unclosed: set[str] = set()
        at = self._code(0, 0, self._open.pop()) if marks and marks[-1][0] == "`" else 0
        while found := self._next(at):
            at = self._take(found)
        self.marks = tuple(self._open)

    @property
    def atoms(self) -> Iterator[tuple[int, int]]:
        """What must not be cut: from where to where."""
        for span in self.spans:
            yield span.start, span.end
        if self.begun:
            yield self.begun[0], len(self._text)

    def _next(self, at: int) -> re.Match[str] | None:
        found = _TOKEN.search(self._text, at)
        if self._grows and self.begun is None:
            stop = found.start() if found else len(self._text)
            self.begun = self._begun(at, stop)
            if self.begun:
                return None
        return found

    def _begun(self, start: int, stop: int) -> tuple[int, str] | None:
        for place in re.finditer(r"[<\[]", self._text[start:stop]):
            at = start + place.start()
            if place[0] == "<":
                if _TOKEN_BEGUN.match(self._text, at):
                    return at, ""
            else:
                at -= at > 0 and self._text[at - 1] == "!"
                if found := _LINK_BEGUN.match(self._text, at):
                    return at, found["label"]
        return None

    def _take(self, found: re.Match[str]) -> int:
        """Note what was found; where to go on."""
        start, end = found.span()
        match found.lastgroup:
            case "ticks":
                return self._code(start, end, found[0])
            case "marks":
                self._emphasis(start, found[0])
            case "escape" | "reference" | "angle" | "address":
                self.spans.append(Span(start, end))
            case _:
                target = found["target"].removeprefix("<").removesuffix(">")
                link = Link(found["label"], target, found[0], found[0].startswith("!"))
                self.spans.append(Span(start, end, link=link))
        return end

    def _code(self, start: int, inside: int, ticks: str) -> int:
        """Code whose ticks begin at `start`, or stood before the text, and which is `inside` from there on."""
        if ticks not in self._unclosed:
            if found := re.compile(rf"(?<!`){ticks}(?!`)").search(self._text, inside):
                self.spans.append(Span(start, found.end(), ticks=ticks))
                return found.end()
            self._unclosed.add(ticks)
        if inside == start or (self._grows and len(ticks) <= _MOST_TICKS):
            self.spans.append(Span(start, len(self._text), ticks=ticks, is_closed=False))
            self._open.append(ticks)
            return len(self._text)
        return inside

    def _emphasis(self, start: int, marks: str) -> None:
        sign, size = marks[0], len(marks)
        opens, closes = self._flanks(start, start + size)
        if size > _MOST_MARKS or (sign == "~" and size != 2):
            return
        while closes and size and (inner := self._innermost(sign)) is not None:
            used = min(len(self._open[inner]), size)
            left = self._open[inner][used:]
            self._open[inner:] = [left] if left else []
            size -= used
        if opens and size and sum(map(len, self._open)) + size <= _MOST_CARRIED:
            self._open.append(sign * size)

    def _innermost(self, sign: str) -> int | None:
        return next((index for index in reversed(range(len(self._open))) if self._open[index][0] == sign), None)

    def _flanks(self, start: int, end: int) -> tuple[bool, bool]:
        """Whether marks may open and whether they may close emphasis (CommonMark, section 6.2)."""
        before = self._text[start - 1] if start else " "
        behind = self._text[end] if end < len(self._text) else " "
        left = not behind.isspace() and (not _is_sign(behind) or before.isspace() or _is_sign(before))
        right = not before.isspace() and (not _is_sign(before) or behind.isspace() or _is_sign(behind))
        if self._text[start] == "_":
            return left and (not right or _is_sign(before)), right and (not left or _is_sign(behind))
        return left, right


def show(text: str, dialect: Dialect, marks: Sequence[str] = (), *, is_cut: bool = False) -> Shown:
    """A paragraph as `dialect` has it.

    Args:
        marks: what was open at a cut before `text`: it is opened again, and closed in any case.
        is_cut: whether `text` may go on, so that what is open is closed.
    """
    if not text.strip():
        return Shown("", tuple(marks))
    scan = Scan(text, marks, grows=is_cut)
    still_open = scan.marks if is_cut else scan.marks[: _common(scan.marks, marks)]
    body = text.rstrip()
    parts = [
        *_marked(marks),
        *_parts(body, scan.spans, dialect),
        *_marked(still_open[::-1]),
        (False, text[len(body) :]),
    ]
    return Shown(_joined(parts, dialect), scan.marks if is_cut else ())


def presentable(text: str, marks: Sequence[str] = ()) -> str:
    """`text`, which still grows, without what cannot be shown yet at its end."""
    scan = Scan(text, marks, grows=True)
    if scan.begun:
        start, label = scan.begun
        text = text[:start] + (label if not label.startswith(_OPENERS) else "")
        scan = Scan(text, marks, grows=True)
    last = scan.spans[-1] if scan.spans else None
    if last and last.ticks and last.end == len(text):
        if last.is_closed or text[last.start :].strip("`").strip():
            return text if last.is_closed else text.rstrip("`")
        text = text[: last.start]
    return _MARKS_BEGUN.sub("", text)


def decided(text: str, marks: Sequence[str] = ()) -> str:
    """Of `text`, which still grows, what is shown in the same way whatever follows."""
    begun = Scan(text, marks, grows=True).begun
    return presentable(text[: begun[0]] if begun else text, marks)


def plain(text: str) -> str:
    """`text` as it reads without marks: for a cell of a table that is shown as code."""
    scan = Scan(text)
    shown, at = "", 0
    for span in scan.spans:
        shown += _unmarked(text[at : span.start])
        if span.link:
            label = plain(span.link.label)
            shown += label if label == span.link.target else f"{label} ({span.link.target})"
        elif span.ticks:
            shown += text[span.start : span.end].strip("`").strip()
        else:
            shown += text[span.start : span.end].removeprefix("\\")
        at = span.end
    return shown + _unmarked(text[at:])


def _marked(marks: Sequence[str]) -> Iterator[tuple[bool, str]]:
    for mark in marks:
        yield mark.startswith("`"), mark


def _parts(text: str, spans: Sequence[Span], dialect: Dialect) -> Iterator[tuple[bool, str]]:
    """`text` piece by piece: whether it is code, and what it is shown as."""
    at = 0
    for span in spans:
        end = min(span.end, len(text))
        yield False, text[at : span.start]
        if span.link:
            before, behind = dialect.link(span.link)
            label = span.link.label
            yield False, before
            yield from _parts(label, Scan(label).spans, dialect)
            yield False, behind
        elif span.ticks:
            yield True, dialect.code(text[span.start : end])
        else:
            yield False, text[span.start : end]
        at = end
    yield False, text[at:]


def _joined(parts: Sequence[tuple[bool, str]], dialect: Dialect) -> str:
    """One text of `parts`; what calls somebody is found across the seams of prose."""
    shown, prose = "", ""
    for is_code, part in parts:
        if not is_code:
            prose += part
            continue
        shown += dialect.prose(prose) + part
        prose = ""
    return shown + dialect.prose(prose)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the outermost marks are the same ones."""
    return sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(one, other, strict=False)))


def _unmarked(text: str) -> str:
    return re.sub(r"\*{1,3}|~~|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)", "", text)


def _is_sign(character: str) -> bool:
    return not character.isalnum() and not character.isspace()
