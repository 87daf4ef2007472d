"""Slack's markup: plain text for the model, and the dialect of replies' Markdown.

Slack's tokens are mentions, links and dates in angle brackets, such as `<@U1>`.
"""

import re
from collections.abc import Mapping
from textwrap import shorten

from channels.markdown.dialect import Dialect
from channels.markdown.links import Link, show_target
from core.identity import clean_name

#: Most characters of a title.
TITLE_SIZE = 60

_TOKEN = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]*)(?:\|(?P<label>[^<>\n]*))?>")

#: Slack parses tokens inside Markdown too; a `<` before any other character starts no token.
_TOKEN_START = re.compile(r"<(?=[!@#A-Za-z/])")

#: `<https://...>` is an address without a label.
_AUTOLINK = re.compile(r"<(https?://[^\s<>|]+)>")

#: Mentions of users, channels and user groups. Slack: since 2024 the names of the latter two are left out, or empty.
_MENTION = re.compile(
    r"<@(?P<user>[UW][A-Z0-9]+)(?:\|[^<>]*)?>|<(?:#(?=[CDG])|!subteam\^(?=S))(?P<other>[A-Z0-9]+)\|?>"
)

_EVERYBODY = {"channel", "everyone", "here"}

_USER = re.compile(r"<@(?P<id>[UW][A-Z0-9]+)(?:\|[^<>]*)?>")


def mentioned_ids(text: str) -> set[str]:
    """Return the ids of users, channels and user groups that a text mentions.

    Channels and user groups whose mention includes their name are left out.
    """
    return {found["user"] or found["other"] for found in _MENTION.finditer(text)}


def addresses_others(text: str, author: str) -> bool:
    """Return whether a text begins with a mention of a user other than its author, of a user group or of everybody.

    White space, marks of emphasis and mentions of the author may precede it.

    Args:
        author: the id of the author.
    """
    skipped = rf"[\s*_~]|<@{re.escape(author)}(?:\|[^<>]*)?>[,:]?"
    return re.match(rf"(?:{skipped})*+<(?:@[UW]|!(?:subteam\^|(?:{'|'.join(_EVERYBODY)})\b))", text) is not None


def remove_mention(text: str, user_id: str) -> str:
    """Return a text without the mentions of one user.

    A mention and the spaces around it become one space. The ends of the text are stripped.
    """
    return re.sub(rf"(?:(?<!\s)\s++)?<@{re.escape(user_id)}(?:\|[^<>]*)?>\s*", " ", text).strip()


def make_title(text: str) -> str:
    """Return the first words of a message as a title, at most `TITLE_SIZE` characters.

    Mentions of users are left out. The title is empty if the message has no other text.
    """
    return shorten(to_plain_text(_USER.sub("", text), {}), TITLE_SIZE, placeholder="…")


def to_plain_text(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names and URLs in place of Slack's tokens (such as `<@U1>`).

    A mention becomes `@NAME` or `#NAME`, with the id if there is no name. A link becomes `LABEL (URL)`, or the URL
    without a label. A date becomes its label. The escapes `&lt;`, `&gt;` and `&amp;` become their characters.

    Args:
        names: the names of users, channels and user groups by their ids.
    """

    def replacement(token: re.Match[str]) -> str:
        kind, target, label = token["kind"], token["target"], token["label"]
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
                return target if label in (None, "", target) else f"{label} ({target})"

    return _unescape(_TOKEN.sub(replacement, text))


def escape_tokens(text: str) -> str:
    """Return a text in which each `<` that would start a token of Slack is escaped.

    So the text mentions nobody, and no link hides its URL.
    """
    return _TOKEN_START.sub("&lt;", text)


class SlackMarkdown(Dialect):
    """Dialect of Slack's `markdown` block: tables, and tokens such as `<@U1>`.

    Slack parses the tokens even within code.
    """

    link_openers = "(:"

    def max_growth(self, source: str) -> int:
        return 3 * source.count("<") + source.count("](") + source.count("]:")

    def render_prose(self, text: str) -> str:
        return escape_tokens(_AUTOLINK.sub(r"\1", text))

    def render_code(self, text: str) -> str:
        return escape_tokens(text)

    def render_link(self, link: Link) -> tuple[str, str]:
        return show_target(link) if link.is_disguised or set(link.target) & set("|<>") else super().render_link(link)


def utf8_size(text: str) -> int:
    """Return the size of a text in UTF-8 bytes, the unit of Slack's limits."""
    return len(text.encode())


def escape(text: str) -> str:
    """Return a text with `&`, `<` and `>` escaped, so that Slack parses no tokens."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
