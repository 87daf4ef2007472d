"""Slack's own notation: out of what people write, and inert in what the model writes."""

import re
from collections.abc import Mapping

_TOKEN = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]*)(?:\|(?P<label>[^<>\n]*))?>")

#: Slack parses `<...>` inside markdown too; a bare `<` before anything else is no token.
_TOKEN_START = re.compile(r"<(?=[!@#A-Za-z/])")

_USER = re.compile(r"<@(?P<id>[UW][A-Z0-9]+)(?:\|[^>]*)?>")


def users_named(text: str) -> set[str]:
    """The ids of the people that `text` mentions."""
    return {found["id"] for found in _USER.finditer(text)}


def without_mention(text: str, user_id: str) -> str:
    """`text` without the mentions of one user."""
    return re.sub(rf"\s*<@{re.escape(user_id)}(?:\|[^>]*)?>\s*", " ", text).strip()


def to_words(text: str, names: Mapping[str, str]) -> str:
    """What a person reads where Slack writes tokens and entities.

    Args:
        names: people's names by their ids.
    """

    def words(token: re.Match[str]) -> str:
        kind, target, label = token["kind"], token["target"], token["label"]
        match kind:
            case "@":
                return f"@{names.get(target, label or target)}"
            case "#":
                return f"#{label or target}"
            case "!":
                return label or f"@{target.partition('^')[0]}"
            case _:
                return target if label in (None, "", target) else f"{label} ({target})"

    return _unescape(_TOKEN.sub(words, text))


def inert(text: str) -> str:
    """`text` with nothing in it that would ping anyone or hide where a link leads."""
    return _TOKEN_START.sub("&lt;", text)


def plain(text: str) -> str:
    """`text` for a field that Slack does not read as Markdown, such as a notification."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
