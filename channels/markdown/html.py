"""HTML in a model's Markdown: tags and entities become the platform's Markdown, comments are left out.

Only tags that format text are converted or removed. Other text in angle brackets, such as `List<String>`, stays.
"""

import re
from html import unescape

from channels.markdown.blocks import COMMENT_END, COMMENT_START, split_quote, starts_block
from channels.markdown.dialect import Dialect
from channels.markdown.links import Link, quote_target, show_target

#: Tags of pairs that have a mark in `Dialect.html_marks`, by their names.
PAIRED_TAGS = {
    **dict.fromkeys(("b", "strong", "summary"), "b"),
    **dict.fromkeys(("i", "em"), "i"),
    **dict.fromkeys(("s", "del", "strike"), "s"),
    **dict.fromkeys(("u", "ins"), "u"),
    **dict.fromkeys(("code", "kbd", "samp", "tt"), "code"),
}  # fmt: skip

#: Tags that begin and end lines. Removed tags of other kinds leave the line as it is.
_BLOCK_TAGS = frozenset(("p", "div", "li", "tr", "blockquote", "hr", *(f"h{level}" for level in range(1, 7))))
_OTHER_TAGS = frozenset(
    "details span center small big sub sup ul ol font mark td th thead tbody wbr br img a".split()  # noqa: SIM905
)
_KNOWN_TAGS = _BLOCK_TAGS | _OTHER_TAGS | PAIRED_TAGS.keys()
_LINE_TAGS = _BLOCK_TAGS | {"details", "summary", "center", "ul", "ol", "hr", "thead", "tbody", "span", "small", "font"}

#: Entity of HTML; CommonMark requires the semicolon.
ENTITY = r"&(?:\#\d{1,7}|\#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,31});"

TAG = re.compile(r"<(?P<slash>/?)(?P<name>[A-Za-z][A-Za-z\d]{0,10}+)(?P<attributes>\s[^<>\[\]]{0,2000}+)?/?>")

_MARKUP = re.compile(
    rf"""
      (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<entity>{ENTITY})
    | (?P<address>https?://[^\s<>()]*+)
    | (?P<autolink><(?:https?://[^\s<>|]{{1,2000}}+|(?:mailto:)?[\w.+-]{{1,64}}+@[\w.-]{{1,255}}+)>)
    | (?P<comment>{COMMENT_START})
    | (?P<tag>{TAG.pattern})
    """,
    re.VERBOSE | re.IGNORECASE,
)

_TARGET = re.compile(r"\s(?:href|src)=(?:\"([^\"\s]++)\"|'([^'\s]++)')", re.IGNORECASE)
_ALT = re.compile(r"\salt=(?:\"([^\"]*+)\"|'([^']*+)')", re.IGNORECASE)
_WEB = re.compile(r"https?://|mailto:", re.IGNORECASE)

#: Characters that mean themselves as an entity, and markup otherwise; those of the second text at the start of a line.
_SIGNS, _LINE_SIGNS = frozenset("\\`*_~[]|("), frozenset(">#")

_LINE_REST = re.compile(r"[ \t]*+(?:\r\n?|\n|\Z)")
_SPACES = re.compile(r"[ \t]*+")

#: Content of a `sup` tag that is read as an exponent. `10<sup>6</sup>` is not 106.
_EXPONENT = re.compile(r"[+\-\u2212]?(?:\d+|\w)")

_ENDS = re.compile(r"(?P<before>\s*+)(?P<inside>.*\S)?(?P<after>\s*)", re.DOTALL)

#: Code that one backtick can enclose.
_PLAIN_CODE = re.compile(r"[^`\n\ud800]++")

#: Punctuation beside which CommonMark sees no end of emphasis, without the signs of Markdown.
_PUNCTUATION = ".,:;!?\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"


def opens_pair(text: str, tag: re.Match[str]) -> bool:
    """Return whether an opening tag is one of `PAIRED_TAGS`, and not likely a type parameter."""
    return tag["name"].lower() in PAIRED_TAGS and not _is_type_parameter(text, tag)


def _is_type_parameter(text: str, tag: re.Match[str]) -> bool:
    """Return whether an opening tag may be a type parameter, such as `Vec<u>` or `<U>`."""
    before = text[max(0, tag.start() - 1) : tag.start()]
    return len(tag["name"]) == 1 and not tag["attributes"] and (tag["name"].isupper() or before.isalnum())


def convert_html(text: str, dialect: Dialect) -> str:
    """Return Markdown (without code) with its HTML in a platform's dialect.

    Escaped characters and addresses stay. A comment without an end stays, too.
    """
    if "<" not in text and "&" not in text and "\\" not in text:
        return text
    return _HtmlConverter(text, dialect).convert()


class _HtmlConverter:
    """Converts the HTML of one text.

    Pairs of tags are found when the closing tag is read. An opening tag without a closing one is removed, except for
    possible type parameters.
    """

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._out: list[str] = []
        self._open: list[tuple[str, int, re.Match[str]]] = []  # kind, index in `_out`, opening tag

    def convert(self) -> str:
        at = 0
        while found := _MARKUP.search(self._text, at):
            self._out.append(self._text[at : found.start()])
            at = found.end()
            match found.lastgroup:
                case "escape":
                    sign = found[0][1]
                    self._out.append(sign if sign in self._dialect.entity_signs else found[0])
                case "entity":
                    self._write_entity(found[0])
                case "address":
                    self._out.append(found[0].replace("&amp;", "&"))
                case "autolink":
                    is_last = at == len(self._text) or self._text[at].isspace()
                    self._out.append(self._dialect.render_autolink(found[0], is_last=is_last))
                case "comment":
                    end = self._text.find(COMMENT_END, found.start() + 2)
                    at = end + len(COMMENT_END) if end >= 0 else at
                    self._out.append("" if end >= 0 else found[0])
                case _:
                    at = self._convert_tag(found)
        self._out.append(self._text[at:])
        return "".join(self._out)

    def _write_entity(self, entity: str) -> None:
        characters = unescape(entity)
        if characters == entity:  # no entity of HTML
            self._out.append(entity)
            return
        for character in characters:
            is_sign = character in _SIGNS or (character in _LINE_SIGNS and not self._line.strip())
            self._out.append(self._dialect.escape_sign(character) if is_sign else character.replace("\n", " "))

    @property
    def _line(self) -> str:
        """The output since its last line end."""
        parts = list[str]()
        for part in reversed(self._out):
            parts.append(part.rpartition("\n")[2])
            if "\n" in part:
                break
        return "".join(reversed(parts))

    def _convert_tag(self, tag: re.Match[str]) -> int:
        """Append what a tag becomes; return the position in the text from which to read on."""
        name = tag["name"].lower()
        kind = PAIRED_TAGS.get(name, name)
        is_type = _is_type_parameter(self._text, tag)
        is_plain = not tag["slash"] and ((name == "a" and not tag["attributes"]) or (name == "p" and is_type))
        if name not in _KNOWN_TAGS or is_plain:
            self._out.append(tag[0])
            return tag.end()
        if name == "br":
            return self._break_line(tag.end())
        if name == "img":
            self._out.append(self._render_image(tag["attributes"] or ""))
        elif tag["slash"]:
            self._close(kind, tag)
        elif name in PAIRED_TAGS or name in ("a", "sup"):
            self._open.append((kind, len(self._out), tag))
            self._out.append(tag[0] if is_type else "")
        return self._end_line(name, tag) if name in _LINE_TAGS else tag.end()

    def _close(self, kind: str, tag: re.Match[str]) -> None:
        numbers = reversed(range(len(self._open)))
        number = next((number for number in numbers if self._open[number][0] == kind), None)
        if number is None:
            return
        _, at, opening = self._open[number]
        del self._open[number:]
        inside = "".join(self._out[at + 1 :])
        del self._out[at:]
        if kind == "a":
            self._out.append(self._render_anchor(opening["attributes"], inside))
        elif kind == "sup":
            self._out.append(f"^{inside}" if _EXPONENT.fullmatch(inside) else inside)
        elif kind == "code" and kind in self._dialect.html_marks:
            code = unescape(self._text[opening.end() : tag.start()])
            self._out.append(f"`{code}`" if code.strip() and _PLAIN_CODE.fullmatch(code) else inside)
        else:
            before = self._text[max(0, opening.start() - 1) : opening.start()]
            after = self._text[tag.end() : tag.end() + 1]
            self._out.append(_mark(inside, self._dialect.html_marks.get(kind, ""), before, after))

    def _render_anchor(self, attributes: str, label: str) -> str:
        target = _get_target(attributes)
        label = label.strip()
        if not target:
            return label
        link = Link(label, target, f"[{label}]({target})")
        before, after = show_target(link) if set("[]") & set(label) else self._dialect.render_link(link)
        return f"{before}{label}{after}"

    def _render_image(self, attributes: str) -> str:
        found = _ALT.search(attributes)
        label = re.sub(r"[\[\]\n]", " ", unescape(found[1] or found[2] or "")).strip() if found else ""
        return self._render_anchor(attributes, label)

    def _break_line(self, end: int) -> int:
        """Append a line end that stays in the list item or block quote; none at the end of a line."""
        if rest := _LINE_REST.match(self._text, end):
            return rest.start()
        line = self._line
        self._out.append("\n> " if split_quote(line)[0].strip() else "\n  " if starts_block(line) else "\n")
        spaces = _SPACES.match(self._text, end)
        return spaces.end() if spaces else end

    def _end_line(self, name: str, tag: re.Match[str]) -> int:
        """Begin, end or leave out a line at the tag of a block; return where to read on."""
        rest = _LINE_REST.match(self._text, tag.end())
        is_empty = not self._line.strip()
        if rest and is_empty:
            for index in range(len(self._out) - 1, -1, -1):
                self._out[index] = self._out[index].rstrip(" \t")
                if self._out[index]:
                    break
            return rest.end()
        if name == "li" and not tag["slash"]:
            self._out.append("- " if is_empty else "\n- ")
        elif not rest and not is_empty and (name in _BLOCK_TAGS or (name == "summary" and tag["slash"])):
            self._out.append("\n")
        return tag.end()


def _mark(text: str, mark: str, before: str, after: str) -> str:
    """Return a text with emphasis marks that CommonMark accepts between the characters beside it.

    White space is never marked; neither is punctuation at an end that a letter follows or precedes.
    """
    found = _ENDS.fullmatch(text)
    assert found is not None
    start = found["before"]
    inside = found["inside"] or ""
    end = found["after"]
    if mark == "**":
        inside = inside.replace(mark, "")
    if not end and after.isalnum():
        kept = inside.rstrip(_PUNCTUATION)
        inside, end = kept, inside[len(kept) :]
    if not start and before.isalnum():
        kept = inside.lstrip(_PUNCTUATION)
        inside, start = kept, inside[: len(inside) - len(kept)]
    return f"{start}{mark}{inside}{mark}{end}" if inside else start + end


def _get_target(attributes: str) -> str:
    """Return the address in an attribute of a tag; empty if it is no address of the web or of mail."""
    found = _TARGET.search(attributes)
    target = unescape(found[1] or found[2]) if found else ""
    return quote_target(target) if _WEB.match(target) else ""
