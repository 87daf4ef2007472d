"""Markdown within a paragraph: code, links, tokens and emphasis; what of it is open, and how it is shown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from channels.markdown.blocks import LINE_END
from channels.markdown.dialect import Dialect
from channels.markdown.links import LINK, LINK_BEGUN, Link

_TOKEN = re.compile(
    rf"""
      (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<ticks>`+)
    | (?P<link>{LINK})
    | (?P<reference>\[[^\[\]\n`]{{1,500}}+\]\[[^\[\]\n`]{{0,200}}+\])
    | (?P<angle><[!@#/A-Za-z:][^<>\s]{{0,2000}}+(?:[ ][^<>\n]{{0,300}}+)?+>)
    | (?P<address>https?://[^\s<>`*\[\]\\]++)
    | (?P<marks>\*+|_+|~+)
    """,
    re.VERBOSE | re.DOTALL,
)

#: At the end of a text that still grows: what may become a token, or a tag.
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
_MARKS_BEGUN = re.compile(r"(?<![*_~`\\])[*_~`\\]++\Z")

_TICKS = re.compile(r"\\.|(?P<ticks>`+)", re.DOTALL)

#: What stands round the number of a piece of code where it was taken out: no text has half a character in it.
_SIGN = "\ud800"
_PLACE = re.compile(rf"{_SIGN}(\d+){_SIGN}")

#: At the end of code that is open: what would go together with the ticks that close it.
_CODE_ENDING = re.compile(r"(?<![`\s])[`\s]*`\s*\Z")

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
                if found := LINK_BEGUN.match(self._text, at):
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
            case _ if self._is_cut_by_code(found):
                return found.start("label")
            case _:
                target = found["target"].removeprefix("<").removesuffix(">")
                link = Link(found["label"], target, found[0], found[0].startswith("!"))
                self.spans.append(Span(start, end, link=link))
        return end

    def _is_cut_by_code(self, link: re.Match[str]) -> bool:
        """Whether code that begins in the label goes on behind it: it goes before links (CommonMark, section 6.3)."""
        at, stop = link.span("label")
        while found := _TICKS.search(self._text, at, stop):
            at, ticks = found.end(), found["ticks"]
            if not ticks:
                continue
            closing = re.compile(rf"(?<!`){ticks}(?!`)").search(self._text, at)
            if closing is None and self._grows and len(ticks) <= _MOST_TICKS:
                return True
            if closing and closing.end() > stop:
                return True
            at = closing.end() if closing else at
        return False

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
        self.spans.append(Span(start, inside))  # they stay together
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
    is_in_code = body.endswith("`") and bool(still_open) and still_open[-1].startswith("`")
    parts = [
        *_marked(marks),
        *_parts(body, scan.spans, dialect),
        *([(True, " ")] if is_in_code else []),
        *_marked(still_open[::-1]),
        (False, text[len(body) :]),
    ]
    shown = _joined(parts, dialect)
    return Shown(open_links(shown, dialect), scan.marks if is_cut else ())


def open_links(text: str, dialect: Dialect) -> str:
    """`text` in which nothing is a link but what `Link` knows, and knows to be open.

    Each platform has rules of its own for what is a link. Whatever it might take for one, though it is not read as one
    here, is broken before its target: in `[label](target)`, and in `[name]: target` below `[label][name]`.
    """
    if not any(f"]{sign}" in text for sign in dialect.leads):
        return text
    shown, at, spans = "", 0, Scan(text).spans
    codes = [text[span.start : span.end] for span in spans if span.ticks]
    is_sure = not any(LINE_END.search(code) for code in codes)  # else one may end with the block that its line is in
    for span in spans:
        if span.ticks:
            inside = text[span.start + len(span.ticks) : span.end]
            shown += _broken(text[at : span.start], dialect) + span.ticks
            shown += inside if is_sure else open_links(inside, dialect)
        elif span.link and not span.link.is_disguised:
            label = text.index("[", span.start) + 1
            target = label + len(span.link.label) + len("](")
            shown += _broken(text[at:label], dialect) + open_links(span.link.label, dialect)
            shown += "](" + _broken(text[target : span.end], dialect)
        else:
            continue
        at = span.end
    return shown + _broken(text[at:], dialect)


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
            return text if last.is_closed else _CODE_ENDING.sub("", text)
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


def _broken(text: str, dialect: Dialect) -> str:
    return re.sub(rf"\](?=[{dialect.leads}])", r"]\\", text)


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


def _joined(parts: Iterable[tuple[bool, str]], dialect: Dialect) -> str:
    """One text of `parts`. Prose is read as a whole, for what goes round code, with signs in the places of that."""
    prose, codes = "", list[str]()
    for is_code, part in parts:
        prose += f"{_SIGN}{len(codes)}{_SIGN}" if is_code else part
        if is_code:
            codes.append(part)
    return _PLACE.sub(lambda place: codes[int(place[1])], dialect.prose(prose))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the outermost marks are the same ones."""
    return sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(one, other, strict=False)))


def _unmarked(text: str) -> str:
    return re.sub(r"\*{1,3}|~~|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)", "", text)


def _is_sign(character: str) -> bool:
    return not character.isalnum() and not character.isspace()
