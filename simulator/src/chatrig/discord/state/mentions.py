"""Mentions in a text: parsing, `allowed_mentions`, and display with names.

Discord: docs.discord.com/developers/resources/message, "Allowed Mentions Object". Without that object all mentions
ping, also in an edit, and a reply pings the author of its message. With it, only the listed mentions ping. Discord does
not publish whether code hides a mention: here it does not.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

_USER = re.compile(r"<@!?(\d+)>")
_ROLE = re.compile(r"<@&(\d+)>")
_EVERYONE = re.compile(r"@(everyone|here)\b")
_ANY_MENTION = re.compile(r"<(@!?|@&|#)(\d+)>")


@dataclass(frozen=True, slots=True)
class MessageMentions:
    """Mentions of a message that ping.

    Attributes:
        users: user ids in the order of the text, each once; then, if not among them, the author of the message that is
            replied to.
        roles: role ids in the order of the text, each once.
        everyone: `everyone` and `here`, as far as mentioned.
    """

    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    everyone: frozenset[str] = frozenset()

    @property
    def pings(self) -> frozenset[str]:
        """Ids of the mentioned users and roles, and `everyone` and `here`, as one set."""
        return frozenset(self.users) | frozenset(self.roles) | self.everyone


def parse_mentions(
    text: str, allowed: Mapping[str, Any] | None, known: Container[str], *, reply_to: str | None = None
) -> MessageMentions:
    """Return those mentions of a message's text that ping.

    Mentions of unknown users are left out. The ids of roles are not checked.

    Args:
        text: the text as sent.
        allowed: the valid `allowed_mentions` of the request; None if it has none. Then all mentions and replies ping.
        known: the ids of the existing users.
        reply_to: the id of the author of the message to which this one replies; None for no reply. They are pinged too,
            unless `replied_user` of `allowed` is missing or false.
    """
    if allowed is None:
        allowed = {"parse": ["users", "roles", "everyone"], "replied_user": True}
    parse = allowed.get("parse") or []
    users = [found for found in _USER.findall(text) if found in known]
    if "users" not in parse:
        users = [user for user in users if user in _listed_ids(allowed, "users")]
    if reply_to is not None and allowed.get("replied_user"):
        users.append(reply_to)
    roles = [role for role in _ROLE.findall(text) if "roles" in parse or role in _listed_ids(allowed, "roles")]
    everyone = frozenset(_EVERYONE.findall(text)) if "everyone" in parse else frozenset[str]()
    return MessageMentions(tuple(dict.fromkeys(users)), tuple(dict.fromkeys(roles)), everyone)


def _listed_ids(allowed: Mapping[str, Any], kind: str) -> set[str]:
    return {str(given) for given in allowed.get(kind) or []}


def replace_ids(text: str, names: Mapping[str, str]) -> str:
    """Replace the mentions in a text by names, without the mention's markup.

    `<@1>` and `<@&1>` become `@name`, `<#1>` becomes `#name`. A mention of an unknown id stays unchanged.

    Args:
        names: names of users, roles and channels by id.
    """

    def replace(match: re.Match[str]) -> str:
        name = names.get(match[2])
        return match[0] if name is None else f"{'#' if match[1] == '#' else '@'}{name}"

    return _ANY_MENTION.sub(replace, text)
