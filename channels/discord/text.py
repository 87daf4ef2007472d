"""Discord's markup: plain text for the model, and the dialect of its Markdown.

Discord: support.discord.com/hc/en-us/articles/210298617, "Markdown Text 101". It has headings of three levels, lists,
quotations, code between backticks and links to the web; no tables, images, rules, HTML, footnotes or tilde fences.
Mentions in the model's text are made inert.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from channels.markdown.dialect import Dialect
from channels.markdown.html import convert_html
from channels.markdown.links import Link, show_target
from channels.markdown.split_points import cluster_starts
from core.messages.identity import clean_name

_TOKEN = re.compile(r"<(?P<kind>@!?|@&|#)(?P<id>\d+)>")

#: Custom emoji, slash command, guild navigation, and time in seconds since the epoch.
_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_COMMAND = re.compile(r"<(/[^:<>\n]+):\d+>")
_NAVIGATION = re.compile(r"<id:([\w-]+)>")
_TIME = re.compile(r"<t:(?P<at>-?\d{1,12})(?::[A-Za-z])?>")

#: Start of a mention of a user, role, channel or command, and of `@everyone` and `@here`.
_MENTION_START = re.compile(r"<(?=@|#|/)|@(?=everyone|here)")
_ZERO_WIDTH_SPACE = "\u200b"

_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")

_ENDING_MARKS = re.compile(r"(?<!\s)\s++#++\s*+\Z")

_ITEM = re.compile(r"(?P<indent>\s*)(?P<marker>[-*+]|\d{1,9}[.)])(?P<space>\s+)(?P<box>\[[ xX]\]\s)?")

_QUOTATION = re.compile(r"(?: {0,3}>){2,} ?")

_BRACKETS = re.compile(r"\[[^\[\]]+\]")

_TICK = re.compile(r"(?<!\\)`")

_FOOTNOTE = re.compile(r"\[\^(\w{1,30})\]")

_BOLD = re.compile(r"(?<![\w_])__(?=[^\s_])([^_\n]+)(?<=\S)__(?![\w_])")


def addresses_others(text: str, author: int) -> bool:
    """Return whether a text begins with a mention of a user other than its author, of a role or of everybody.

    White space, marks of emphasis and mentions of the author may precede it.
    """
    skipped = rf"[\s*_~|]|<@!?{author}>[,:]?"
    return re.match(rf"(?:{skipped})*+(?:<@[!&]?\d+>|@(?:everyone|here)\b)", text) is not None


def remove_mentions(text: str, *ids: int) -> str:
    """Return a text without the mentions of the users or roles with these ids.

    One space replaces each mention with the white space around it. White space at both ends is removed.
    """
    targets = "|".join(str(id_) for id_ in ids)
    return re.sub(rf"(?:(?<!\s)\s++)?<@[!&]?(?:{targets})>\s*", " ", text).strip()


def find_mentions(text: str) -> set[tuple[str, int]]:
    """Return the roles (`@&`) and channels (`#`) that a text mentions, by sign and id, but no users."""
    return {(token["kind"], int(token["id"])) for token in _TOKEN.finditer(text) if token["kind"] in ("@&", "#")}


def replace_tokens(text: str, names: Mapping[tuple[str, int], str]) -> str:
    """Return a text with readable names and times in place of Discord's tokens.

    Mentions become `@name` or `#name`, custom emoji `:name:`, and slash commands `/name`. A timestamp becomes its time
    in UTC.
    """

    def render_token(token: re.Match[str]) -> str:
        kind = token["kind"].rstrip("!")
        name = clean_name(names.get((kind, int(token["id"])), ""))
        return f"{kind[0]}{name or token['id']}"

    text = _COMMAND.sub(r"\1", _EMOJI.sub(r"\1", _TOKEN.sub(render_token, text)))
    return _TIME.sub(_format_time, _NAVIGATION.sub(r"#\1", text))


def _format_time(token: re.Match[str]) -> str:
    """Return the time of a Discord timestamp (`<t:1700000000>`) as text in UTC.

    Discord itself would show it in the time zone of the reader. An invalid timestamp is returned as it is.
    """
    try:
        return datetime.fromtimestamp(int(token["at"]), UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return token[0]


def disable_mentions(text: str) -> str:
    """Return a text with a zero-width space in each mention, so that none notifies.

    Discord does not parse a mention that contains a space.
    """
    return _MENTION_START.sub(lambda sign: sign[0] + _ZERO_WIDTH_SPACE, text)


def shorten(text: str, max_size: int) -> str:
    """Return a text on one line, truncated by an ellipsis to `max_size` characters.

    A character is a code point; the cut is between grapheme clusters.
    """
    line = " ".join(text.split())
    if len(line) <= max_size:
        return line
    end = max(at for at in cluster_starts(line, 0, max_size) if at < max_size)
    return f"{line[:end].rstrip()}…"


def quote_lines(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


class DiscordMarkdown(Dialect):
    """Dialect of Discord's Markdown, which lacks tables, HTML and code within lists."""

    max_table_columns = 0
    has_spoilers = True
    nests_code = False
    link_openers = "("
    html_marks: Mapping[str, str] = {**Dialect.html_marks, "u": "__"}
    empty_code_line = _ZERO_WIDTH_SPACE  # Discord continues an empty block to the next fence

    def max_growth(self, source: str) -> int:
        return sum(map(source.count, ("<", "@", "`", "](", "\ufdd0", "\ufdd1")))

    def render_prose(self, text: str) -> str:
        text = _TICK.sub(r"\\`", text)  # it would pair with a later tick
        text = _BOLD.sub(r"**\1**", _FOOTNOTE.sub(r"[\1]", text))  # two underscores would underline it
        return disable_mentions(convert_html(text, self))

    def render_autolink(self, token: str, *, is_last: bool) -> str:
        return token if "://" in token else token[1:-1].removeprefix("mailto:")

    def render_code(self, text: str) -> str:
        inside = text.strip("`")
        if not text.startswith("```") or len(inside) == len(text):
            return text
        return f"```{self.render_code_line(inside) if inside.strip() else _ZERO_WIDTH_SPACE}```"

    def render_code_line(self, line: str) -> str:
        return re.sub("``(?=`)", f"``{_ZERO_WIDTH_SPACE}", line)

    def render_fence(self, marks: str, info: str) -> tuple[str, str]:
        language = _LANGUAGE.match(info)
        return f"```{language[0] if language else ''}", "```"

    def render_heading(self, marks: str, text: str) -> str:
        text = _ENDING_MARKS.sub("", text).strip()
        if marks.count("#") <= 3:
            return f"{marks.strip()} {text}"
        return f"**{disable_mentions(text.replace('**', ''))}**"  # the removed marks may have split a token

    def render_line(self, line: str) -> str:
        line = _QUOTATION.sub("> ", line)  # `>>> ` would quote all that follows
        if not (item := _ITEM.match(line)):
            return line
        marker = {"+": "-"}.get(item["marker"], item["marker"].replace(")", "."))
        box = {"[ ]": "☐ ", "[x]": "☑ "}[item["box"].strip().lower()] if item["box"] else ""
        return f"{item['indent']}{marker}{item['space']}{box}{line[item.end() :]}"

    def render_rule(self, line: str) -> str:
        return "───"

    def render_link(self, link: Link) -> tuple[str, str]:
        if link.is_disguised or not link.label.strip() or not link.target.lower().startswith(("https://", "http://")):
            return show_target(link)
        if _BRACKETS.fullmatch(link.label):
            return "", f"({link.target})"
        if "[" in link.label:  # the label would begin at any bracket further up that is open
            return show_target(link)
        return "[", f"]({link.target})"


def utf16_size(text: str) -> int:
    """Return the size of a text in UTF-16 code units.

    Discord documents no unit for its limits; of the possible units, this one yields the largest size.
    """
    return len(text.encode("utf-16-le")) // 2
