"""Slack's own notation: out of what people write, and inert in what the model writes."""

import re
from collections.abc import Mapping
from textwrap import shorten

from channels.markdown.dialect import Dialect
from channels.markdown.links import Link, openly

#: Characters of a title, at the most.
TITLE_SIZE = 60

_TOKEN = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]*)(?:\|(?P<label>[^<>\n]*))?>")

#: Slack parses `<...>` inside markdown too; a bare `<` before anything else is no token.
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
    """Return the ids of the users that a text mentions, and of the channels and user groups that it does not name."""
    return {found["user"] or found["other"] for found in _MENTION.finditer(text)}


def without_mention(text: str, user_id: str) -> str:
    """`text` without the mentions of one user."""
    return re.sub(rf"(?:(?<!\s)\s++)?<@{re.escape(user_id)}(?:\|[^<>]*)?>\s*", " ", text).strip()


def titled(text: str) -> str:
    """The first words of what somebody writes, for a title; whom it calls is left out."""
    return shorten(to_words(_USER.sub("", text), {}), TITLE_SIZE, placeholder="…")


def to_words(text: str, names: Mapping[str, str]) -> str:
    """What a person reads where Slack writes tokens and entities.

    Args:
        names: of people, channels and groups by their ids.
    """

    def words(token: re.Match[str]) -> str:
        kind, target, label = token["kind"], token["target"], token["label"]
        match kind:
            case "@":
                return f"@{names.get(target, label or target)}"
            case "#":
                return f"#{label or names.get(target, target)}"
            case "!":
                whom, _, group = target.partition("^")
                if label and whom not in _EVERYBODY:
                    return label
                return f"@{names.get(group, group) if whom == 'subteam' else whom}"
            case _:
                return target if label in (None, "", target) else f"{label} ({target})"

    return _unescape(_TOKEN.sub(words, text))


def inert(text: str) -> str:
    """`text` with nothing in it that would ping anyone or hide where a link leads."""
    return _TOKEN_START.sub("&lt;", text)


class SlackMarkdown(Dialect):
    """Slack's `markdown` block: standard Markdown with tables, in which `<...>` is Slack's own, even within code."""

    leads = "(:"

    def growth(self, source: str) -> int:
        return 3 * source.count("<") + source.count("](") + source.count("]:")

    def prose(self, text: str) -> str:
        return inert(_AUTOLINK.sub(r"\1", text))

    def code(self, text: str) -> str:
        return inert(text)

    def link(self, link: Link) -> tuple[str, str]:
        return openly(link) if link.is_disguised or set(link.target) & set("|<>") else super().link(link)


def size(text: str) -> int:
    """The size of `text` as Slack counts it: in bytes."""
    return len(text.encode())


def escaped(text: str) -> str:
    """`text` as words and nothing else, where Slack reads its own tokens."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
