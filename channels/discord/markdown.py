"""Discord's Markdown: what it lacks is written with what it has, and what would call somebody is inert.

Discord: support.discord.com/hc/en-us/articles/210298617, "Markdown Text 101". It knows headings of three levels, lists,
quotations, code between backticks and links to the web; no tables, images, rules, HTML, footnotes or tildes as fences.
"""

import re

from channels.discord.text import inert
from channels.markdown.dialect import Dialect
from channels.markdown.links import Link, openly

_ZERO_WIDTH_SPACE = "\u200b"
_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")
_ENDING_MARKS = re.compile(r"\s+#+\s*\Z")
_ITEM = re.compile(r"(?P<indent>\s*)(?P<marker>[-*+]|\d{1,9}[.)])(?P<space>\s+)(?P<box>\[[ xX]\]\s)?")
_QUOTATION = re.compile(r"(?: {0,3}>){2,} ?")

_BRACKETS = re.compile(r"\[[^\[\]]+\]")
_TICK = re.compile(r"(?<!\\)`")
_FOOTNOTE = re.compile(r"\[\^(\w{1,30})\]")
_BOLD = re.compile(r"(?<![\w_])__(?=[^\s_])([^_\n]+)(?<=\S)__(?![\w_])")

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_PAIR = re.compile(r"<(b|strong|i|em|u|s|del|strike|code|kbd|summary)>([^<>]*)</\1>", re.IGNORECASE)
_ANCHOR = re.compile(r"<a\s[^<>]*?href=[\"'](https?://[^\"'\s<>]+)[\"'][^<>]*>([^<>\[\]]*)</a>", re.IGNORECASE)
_TAG = r"</?(?:p|div|span|details|summary|center|small|sub|sup|ul|ol|font)(?:\s[^<>]*)?/?>"
_BOX = re.compile(rf"^[ \t]*{_TAG}[ \t]*\n|{_TAG}", re.IGNORECASE | re.MULTILINE)
_MARKS = {"b": "**", "strong": "**", "summary": "**", "i": "*", "em": "*", "u": "__", "code": "`", "kbd": "`"}


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
    text = _BREAK.sub("\n", _COMMENT.sub("", text))
    text = _PAIR.sub(lambda found: f"{(mark := _MARKS.get(found[1].lower(), '~~'))}{found[2]}{mark}", text)
    return _BOX.sub("", _ANCHOR.sub(_anchor, text))


def _anchor(found: re.Match[str]) -> str:
    link = Link(found[2], found[1], found[0], is_image=False)
    before, behind = openly(link) if link.is_disguised else ("[", f"]({link.target})")
    return f"{before}{link.label}{behind}"
