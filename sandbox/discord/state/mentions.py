"""Whom a text mentions, whom of them it may call, and how people see it.

Discord: docs.discord.com/developers/resources/message, "Allowed Mentions Object". Without one, a text calls all that
it mentions, and so does an edit, whatever the post had said; a reply calls who is replied to. With one, only what it
lists is called. Whether code hides a mention from Discord is not published: here it does not.
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
    """Whom a message calls: ids of users (in the order of the text) and roles, and `everyone` or `here`."""

    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    everyone: frozenset[str] = frozenset()

    @property
    def pings(self) -> frozenset[str]:
        return frozenset(self.users) | frozenset(self.roles) | self.everyone


def parse_mentions(
    text: str, allowed: Mapping[str, Any] | None, known: Container[str], *, reply_to: str | None = None
) -> MessageMentions:
    """Whom `text` calls, under `allowed`.

    Args:
        text: as it was sent.
        allowed: the `allowed_mentions` that came with it, which are valid.
        known: the users that there are.
        reply_to: who wrote what this replies to.
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
    """The text with names in place of ids, as people see it; what is unknown stays as it is."""

    def named(found: re.Match[str]) -> str:
        name = names.get(found[2])
        return found[0] if name is None else f"{'#' if found[1] == '#' else '@'}{name}"

    return _ANY_MENTION.sub(named, text)
