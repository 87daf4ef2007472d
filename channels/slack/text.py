"""Slack's markup: plain text for the model, and the dialect of replies' Markdown.

Slack's tokens are mentions, links and dates in angle brackets, such as `<@U1>`.
"""

import re
from collections.abc import Mapping
from textwrap import shorten

from channels.markdown.dialect import Dialect
from channels.markdown.html import convert_html
from channels.markdown.links import LINK, Link, quote_target, show_target
from channels.markdown.times import format_utc
from core.messages.identity import clean_name

#: Most characters of a title.
TITLE_SIZE = 60

#: Slack: docs.slack.dev/reference/block-kit/blocks/table-block. Slack translates a `markdown` block into such blocks.
MAX_TABLE_ROWS, MAX_TABLE_COLUMNS = 100, 20

_TOKEN = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]*)(?:\|(?P<label>[^<>\n]*))?>")

#: Slack parses tokens inside Markdown too; a `<` before any other character starts no token.
_OPENING_BRACKET = r"<(?=[!@#A-Za-z/])"

#: Slack decodes entities in text and in code, but not in the targets of links (measured: PostHog, pull request 95054).
_ENTITY_START = r"&(?=#?[A-Za-z0-9]{1,32};)"
_ESCAPED_IN_CODE = re.compile(rf"{_OPENING_BRACKET}|{_ENTITY_START}")
_ESCAPED_IN_TEXT = re.compile(rf"(?P<target>https?://[^\s<>()]++)|{_OPENING_BRACKET}|{_ENTITY_START}")

#: `<https://...>` is an address without a label.
_AUTOLINK = re.compile(r"<(https?://[^\s<>|]+)>", re.IGNORECASE)

_LINK = re.compile(LINK)

#: Longest address that is its own label, too.
_MAX_LABEL = 500

#: Characters of an address that may be Markdown in the label of a link.
_LABEL_MARKS = re.compile(r"[\[\]*~`\\]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")

#: Mentions of users, channels and user groups. Slack: since 2024 the names of the latter two are left out, or empty.
_MENTION = re.compile(
    r"<@(?P<user>[UW][A-Z0-9]+)(?:\|[^<>]*)?>|<(?:#(?=[CDG])|!subteam\^(?=S))(?P<other>[A-Z0-9]+)\|?>"
)

#: Blank lines at the start of a text.
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*+\n)++")

#: Parts of a phone number that its address lacks.
_PHONE_MARKS = re.compile(r"[\s().\-/]+")

_ESCAPES = {"<": "&lt;", "&": "&amp;"}

#: Token of `channels.markdown.times`, the same escaped, and the most bytes by which Slack's own one is longer.
_UNESCAPED_TIME = re.compile(r"<t:(\d{1,11}):f>")
_TIME, _TIME_GROWTH = re.compile(r"&lt;t:(\d{1,11}):f>"), 80

#: Slack: docs.slack.dev/messaging/formatting-message-text#date-formatting
DATE_TOKEN = re.compile(r"<!date\^[^<>|]*\|([^<>|]*)>")

_EVERYBODY = {"channel", "everyone", "here"}

_USER = re.compile(r"<@(?P<id>[UW][A-Z0-9]+)(?:\|[^<>]*)?>")


def mentioned_ids(text: str) -> set[str]:
    """Return the ids that a text mentions; channels and groups whose mention has a name are left out."""
    return {found["user"] or found["other"] for found in _MENTION.finditer(text)}


def addresses_others(text: str, author: str) -> bool:
    """Return whether a text begins with a mention of a user other than its author, of a user group or of everybody.

    White space, marks of emphasis and mentions of the author may precede it.
    """
    skipped = rf"[\s*_~]|<@{re.escape(author)}(?:\|[^<>]*)?>[,:]?"
    return re.match(rf"(?:{skipped})*+<(?:@[UW]|!(?:subteam\^|(?:{'|'.join(_EVERYBODY)})\b))", text) is not None


def remove_mention(text: str, user_id: str) -> str:
    """Return a text without the mentions of one user, and without blank lines and spaces at its ends.

    A mention takes at most one space with it. Line breaks and the indentation of lines stay.
    """
    mention = rf"<@{re.escape(user_id)}(?:\|[^<>]*)?>"
    rest = re.sub(rf"[ \t]?{mention}(?:[ \t]*+{mention})*+[ \t]?", _keep_space, text)
    return _BLANK_LINES.sub("", rest.lstrip(" \t")).rstrip()


def _keep_space(found: re.Match[str]) -> str:
    """Return the space in place of a mention and the spaces beside it; none at the ends of a line."""
    text, (start, end) = found.string, found.span()
    before = text[max(start - 1, 0) : start]
    after = text[end : end + 1]
    has_space = text[start].isspace()
    space_follows = text[end - 1].isspace()
    if not (has_space or space_follows):
        return " " if before.isalnum() and after.isalnum() else ""
    is_at_start = before in ("", "\n") and not has_space
    is_at_end = after in ("", "\n") and not space_follows
    return "" if is_at_start or is_at_end else " "


def make_title(text: str) -> str:
    """Return the first words of a message as a title, without mentions of users; may be empty."""
    return shorten(to_plain_text(_USER.sub("", text), {}), TITLE_SIZE, placeholder="…")


def to_plain_text(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names and URLs in place of Slack's tokens (such as `<@U1>`).

    A mention becomes `@NAME` or `#NAME`, with the id if there is no name. A link becomes `LABEL (URL)`. It becomes the
    URL without a label, or the label if that is the address itself, as in Slack's automatic links. A date becomes its
    label. The escapes `&lt;`, `&gt;` and `&amp;` become their characters.
    """

    def replacement(token: re.Match[str]) -> str:
        kind = token["kind"]
        target = token["target"]
        label = token["label"]
        match kind:
            case "@":
                return f"@{clean_name(names.get(target, label or target)) or target}"
            case "#":
                return f"#{clean_name(label or names.get(target, target)) or target}"
            case "!":
                audience, _, group = target.partition("^")
                if label and audience not in _EVERYBODY:
                    return label
                return f"@{clean_name(names.get(group, group)) or group if audience == 'subteam' else audience}"
            case _:
                if label and not _is_address(label, target):
                    return f"{label} ({target})"
                return label or target

    return unescape(_TOKEN.sub(replacement, text))


def _is_address(label: str, target: str) -> bool:
    """Return whether the label of a link is its target, possibly without the scheme."""
    scheme, _, address = target.partition(":")
    match scheme.lower():
        case "http" | "https":
            return label in (target, address.removeprefix("//"))
        case "mailto":
            return label.lower() in (target.lower(), address.lower())
        case "tel":
            return _PHONE_MARKS.sub("", label) == _PHONE_MARKS.sub("", address)
    return label == target


def escape_tokens(text: str) -> str:
    """Return Markdown in which each `<` that would start a token of Slack, and each `&` of an entity, is escaped.

    So the text mentions nobody, no link hides its URL, and readers see the characters of the text.
    """
    if "<" not in text and "&" not in text:
        return text
    return _ESCAPED_IN_TEXT.sub(lambda found: found["target"] or _ESCAPES[found[0]], text)


class SlackMarkdown(Dialect):
    """Dialect of Slack's `markdown` block: tables, and tokens such as `<@U1>`.

    Slack parses the tokens even within code.
    """

    max_table_rows, max_table_columns = MAX_TABLE_ROWS, MAX_TABLE_COLUMNS
    moves_marks = True
    link_openers = "(:"
    entity_signs = "<&"

    def max_growth(self, source: str) -> int:
        growth = source.count("](") + source.count("]:")
        if brackets := source.count("<"):
            growth += 4 * brackets + sum(len(found[1].encode()) + 4 for found in _AUTOLINK.finditer(source))
        return growth + 4 * source.count("&")

    def render_prose(self, text: str) -> str:
        return _TIME.sub(_render_time, escape_tokens(convert_html(text, self)))

    def render_autolink(self, token: str, *, is_last: bool) -> str:
        """Return the address as a link, whose end no following text can move.

        Slack finds the end of a bare address by itself. Mail and an address that cannot be a label get a space instead.
        """
        address = token[1:-1].removeprefix("mailto:")
        if is_last:
            return address
        link = f"[{address}]({address})"
        is_label = "://" in address and len(address) <= _MAX_LABEL and not _LABEL_MARKS.search(address)
        return link if is_label and _LINK.fullmatch(link) else f"{address} "

    def render_code(self, text: str) -> str:
        if "<" not in text and "&" not in text:
            return text
        return _ESCAPED_IN_CODE.sub(lambda found: _ESCAPES[found[0]], text)

    def render_link(self, link: Link) -> tuple[str, str]:
        if link.is_disguised or set(link.target) & set("|<>"):
            return show_target(link)
        before, after = super().render_link(link)
        return before, after.replace(f"<{link.target}>", quote_target(link.target), 1)


def render_times(text: str) -> str:
    """Return a text of the bot with Slack's tokens in place of those of `channels.markdown.times`."""
    return _UNESCAPED_TIME.sub(_render_time, text)


def _render_time(token: re.Match[str]) -> str:
    at = int(token[1])
    try:
        return f"<!date^{at}^{{date_short_pretty}} {{time}}|{format_utc(at)}>"
    except (ValueError, OverflowError, OSError):  # a model may write any number
        return token[0]


def utf8_size(text: str) -> int:
    """Return the size of a text in UTF-8 bytes, the unit of Slack's limits."""
    return len(text.encode())


def escape(text: str) -> str:
    """Return a text with `&`, `<` and `>` escaped, so that Slack parses no tokens."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
