"""Discord's markup: incoming text as plain words, and outgoing Markdown in Discord's dialect.

Discord: support.discord.com/hc/en-us/articles/210298617, "Markdown Text 101". It has headings of three levels, lists,
quotations, code between backticks and links to the web; no tables, images, rules, HTML, footnotes or tilde fences.
Mentions in the model's text are made inert.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from channels.markdown.dialect import Dialect
from channels.markdown.links import Link, openly
from channels.markdown.split_points import boundaries

_TOKEN = re.compile(r"<(?P<kind>@!?|@&|#)(?P<id>\d+)>")

#: What stands for an emoji of a server, a command, a place that every server has, and a time (in seconds since the
#: epoch).
_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_COMMAND = re.compile(r"<(/[^:<>\n]+):\d+>")
_PLACE = re.compile(r"<id:([\w-]+)>")
_TIME = re.compile(r"<t:(?P<at>-?\d{1,12})(?::[A-Za-z])?>")

#: What calls somebody or names a place, and `@everyone` and `@here`.
_CALLS = re.compile(r"<(?=@|#|/)|@(?=everyone|here)")
_ZERO_WIDTH_SPACE = "\u200b"

_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")

_ENDING_MARKS = re.compile(r"(?<!\s)\s++#++\s*+\Z")

_ITEM = re.compile(r"(?P<indent>\s*)(?P<marker>[-*+]|\d{1,9}[.)])(?P<space>\s+)(?P<box>\[[ xX]\]\s)?")

_QUOTATION = re.compile(r"(?: {0,3}>){2,} ?")

_BRACKETS = re.compile(r"\[[^\[\]]+\]")

_TICK = re.compile(r"(?<!\\)`")

_FOOTNOTE = re.compile(r"\[\^(\w{1,30})\]")

_BOLD = re.compile(r"(?<![\w_])__(?=[^\s_])([^_\n]+)(?<=\S)__(?![\w_])")

#: HTML comments. One that is not closed is matched up to the end, so that the text behind it is read only once.
_COMMENT = re.compile(r"<!--(?:(?!-->).)*+(?P<end>-->)?", re.DOTALL)

_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)

_PAIR = re.compile(r"<(b|strong|i|em|u|s|del|strike|code|kbd|summary)>([^<>]*)</\1>", re.IGNORECASE)

_ANCHOR = re.compile(r"<a\s[^<>]*?href=[\"'](https?://[^\"'\s<>]+)[\"'][^<>]*>([^<>\[\]]*)</a>", re.IGNORECASE)

_TAG = r"</?(?:p|div|span|details|summary|center|small|sub|sup|ul|ol|font)(?:\s[^<>]*)?/?>"

_BOX = re.compile(rf"^[ \t]*{_TAG}[ \t]*\n|{_TAG}", re.IGNORECASE | re.MULTILINE)

_MARKS = {"b": "**", "strong": "**", "summary": "**", "i": "*", "em": "*", "u": "__", "code": "`", "kbd": "`"}


def without_mention(text: str, *ids: int) -> str:
    """`text` without the mentions of these users or roles."""
    targets = "|".join(str(one) for one in ids)
    return re.sub(rf"(?:(?<!\s)\s++)?<@[!&]?(?:{targets})>\s*", " ", text).strip()


def named(text: str) -> set[tuple[str, int]]:
    """The roles and channels that `text` has, by sign and id."""
    return {(token["kind"], int(token["id"])) for token in _TOKEN.finditer(text) if token["kind"] in ("@&", "#")}


def to_words(text: str, names: Mapping[tuple[str, int], str]) -> str:
    """What a person reads where Discord writes tokens.

    Args:
        names: by sign (`@`, `@&` or `#`) and id.
    """

    def words(token: re.Match[str]) -> str:
        kind = token["kind"].rstrip("!")
        name = names.get((kind, int(token["id"])))
        return f"{kind[0]}{name or token['id']}"

    text = _COMMAND.sub(r"\1", _EMOJI.sub(r"\1", _TOKEN.sub(words, text)))
    return _TIME.sub(_time, _PLACE.sub(r"#\1", text))


def _time(token: re.Match[str]) -> str:
    """Discord: it shows each reader that of his own place."""
    try:
        return datetime.fromtimestamp(int(token["at"]), UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return token[0]


def inert(text: str) -> str:
    """`text` with nothing in it that would call anyone: Discord parses no token that has a space in it."""
    return _CALLS.sub(lambda sign: sign[0] + _ZERO_WIDTH_SPACE, text)


def headline(text: str, most: int) -> str:
    """The beginning of `text` in one line of so many characters."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    end = max(at for at in boundaries(line, 0, most) if at < most)
    return f"{line[:end].rstrip()}…"


def quoted(text: str) -> str:
    """`text` as a quotation."""
    return "\n".join(f"> {line}" for line in text.splitlines())


class DiscordMarkdown(Dialect):
    """How Discord shows what a model writes."""

    tables = False
    nests = False
    leads = "("
    empty_code = _ZERO_WIDTH_SPACE  # a block without it would go on to the next one

    def growth(self, source: str) -> int:
        return sum(map(source.count, ("<", "@", "`", "](")))

    def prose(self, text: str) -> str:
        text = _TICK.sub(r"\\`", text)  # it is not code, and would pair with a tick further down
        text = _BOLD.sub(r"**\1**", _FOOTNOTE.sub(r"[\1]", text))  # two underscores would underline it
        return inert(_without_html(text) if "<" in text else text)

    def code(self, text: str) -> str:
        inside = text.strip("`")
        if not text.startswith("```") or len(inside) == len(text):
            return text
        return f"```{self.code_line(inside) if inside.strip() else _ZERO_WIDTH_SPACE}```"  # it ends with the next three

    def code_line(self, line: str) -> str:
        return re.sub("``(?=`)", f"``{_ZERO_WIDTH_SPACE}", line)

    def fence(self, marks: str, info: str) -> tuple[str, str]:
        del marks
        language = _LANGUAGE.match(info)
        return f"```{language[0] if language else ''}", "```"

    def heading(self, marks: str, text: str) -> str:
        text = _ENDING_MARKS.sub("", text).strip()
        if marks.count("#") <= 3:
            return f"{marks.strip()} {text}"
        return f"**{inert(text.replace('**', ''))}**"  # what stood between may have kept a token from being one

    def line(self, line: str) -> str:
        line = _QUOTATION.sub("> ", line)  # `>>> ` would quote all that follows
        if not (item := _ITEM.match(line)):
            return line
        marker = {"+": "-"}.get(item["marker"], item["marker"].replace(")", "."))
        box = {"[ ]": "☐ ", "[x]": "☑ "}[item["box"].strip().lower()] if item["box"] else ""
        return f"{item['indent']}{marker}{item['space']}{box}{line[item.end() :]}"

    def rule(self, line: str) -> str:
        del line
        return "───"

    def link(self, link: Link) -> tuple[str, str]:
        if link.is_disguised or not link.label.strip() or not link.target.lower().startswith(("https://", "http://")):
            return openly(link)
        if _BRACKETS.fullmatch(link.label):
            return "", f"({link.target})"
        if "[" in link.label:  # the label would begin at any bracket further up that is open
            return openly(link)
        return "[", f"]({link.target})"


def size(text: str) -> int:
    """The size of `text` in UTF-16 units: Discord does not say what it counts, and no way comes to more."""
    return len(text.encode("utf-16-le")) // 2


def _without_html(text: str) -> str:
    text = _BREAK.sub("\n", _COMMENT.sub(lambda found: "" if found["end"] else found[0], text))
    text = _PAIR.sub(lambda found: f"{(mark := _MARKS.get(found[1].lower(), '~~'))}{found[2]}{mark}", text)
    return _BOX.sub("", _ANCHOR.sub(_anchor, text))


def _anchor(found: re.Match[str]) -> str:
    link = Link(found[2], found[1], found[0], is_image=False)
    before, behind = openly(link) if link.is_disguised else ("[", f"]({link.target})")
    return f"{before}{link.label}{behind}"
