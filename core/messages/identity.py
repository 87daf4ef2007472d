"""Users and locations on a platform, by which access and rights are decided."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import regex  # type: ignore[import-untyped]  # it comes without types
from pydantic import TypeAdapter

#: Invisible characters, except line feed, space and ideographic space: controls, default ignorables, separators, spaces
#: of other widths, and two characters that are blank.
INVISIBLE_CHARACTERS = regex.compile(
    r"[\p{C}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\p{Zs}\u2800\U0001D159--[ \n\u3000]]", regex.VERSION1
)

#: Characters of a name in a prompt, an instruction and the state.
MAX_NAME_LENGTH = 80

#: Names that the state has of several users at most, at their full length.
_MAX_NAMES = 5

#: Prefix of the author id of a bot.
BOT_PREFIX = "bot:"

#: Key in ADK's state of the user whose message is answered. ADK: `temp:` keys belong to one run and are not stored.
USER_STATE_KEY = "temp:speaker"

#: Key in ADK's state: whether a message of the turn is addressed to the bot.
ADDRESSED_STATE_KEY = "temp:is_addressed"

#: Words in rules of the settings, instead of ids of users and roles: the people who run the bot, and everybody.
ADMINS, EVERYONE = "admins", "everyone"

#: Words in rules for approvers: the author of the message, or anybody else.
AUTHOR, OTHERS = "author", "others"

#: Name of the built-in agent. ADK shows a model the messages of an agent with another name as another agent's.
DEFAULT_AGENT_NAME = "parley"

#: Author of stored rows without an author; also a former name of the built-in agent.
FALLBACK_AUTHOR = "lango_agent"


def to_one_line(text: str) -> str:
    """Return a text on one line, with a space in place of each run of invisible characters and spaces."""
    return " ".join(INVISIBLE_CHARACTERS.sub(" ", text).split())


def clean_name(name: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Return a name that a person chose on one line, without invisible characters, cut to a length."""
    return to_one_line(name)[:max_length].rstrip()


def find_time_zone(name: str) -> ZoneInfo | None:
    """Return the time zone with an IANA name; None for an unknown or malformed name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder of zones
        return None


def current_author(author: str) -> str:
    """Return the ADK author of a stored event, with the built-in agent's present name."""
    return DEFAULT_AGENT_NAME if author == FALLBACK_AUTHOR else author


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a message or interaction, with ids and roles of the platform.

    Attributes:
        platform: the name of the adapter that received the message or interaction.
        author: the platform's id of the author; for a bot, `BOT_PREFIX` and the id.
        workspaces: the ids of the known workspaces or servers that the author belongs to.
        is_external: whether the author is a guest from another workspace in a shared channel.
    """

    platform: str
    author: str
    roles: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    is_external: bool = False

    @classmethod
    def from_json(cls, data: object) -> "Actor":
        """Return the actor in the JSON of `dataclasses.asdict`; raise `ValueError` for other data."""
        return _ACTOR_ADAPTER.validate_python(data)

    @property
    def is_bot(self) -> bool:
        return self.author.startswith(BOT_PREFIX)


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a message or interaction on a platform.

    Attributes:
        workspace: the id of the workspace or server; empty for Discord's direct messages.
        channel: the id of the channel or thread.
        parents: the ids of the channel's parents, the nearest first: a thread's channel, a channel's category.
        is_direct: whether the channel is a direct message to the bot.
    """

    workspace: str = ""
    channel: str = ""
    parents: tuple[str, ...] = ()
    is_direct: bool = False

    def get_names(self, platform: str) -> tuple[str, ...]:
        """Return the names of the location for rules in the settings, the narrowest first.

        For direct messages, `PLATFORM:dm` and `dm` come after the channel.
        """
        direct = (f"{platform}:dm", "dm") if self.is_direct else ()
        return tuple(filter(None, (self.channel, *direct, *self.parents, self.workspace)))

    @classmethod
    def from_json(cls, data: object) -> "Location":
        """Return the location in the JSON of `dataclasses.asdict`; raise `ValueError` for other data."""
        return _LOCATION_ADAPTER.validate_python(data)


_ACTOR_ADAPTER, _LOCATION_ADAPTER = TypeAdapter(Actor), TypeAdapter(Location)

#: A location of which nothing is known.
UNKNOWN_LOCATION = Location()


@dataclass(frozen=True, slots=True)
class User:
    """A user of the bot, with the roles by which rules of the settings permit actions.

    Attributes:
        id: the platform's id of the user; empty for several users at once.
        name: the display name; of several users, their names joined by commas.
        is_admin: whether the user runs the bot.
    """

    id: str
    name: str
    roles: frozenset[str] = frozenset()
    is_admin: bool = False
    platform: str = ""
    workspace: str = ""


def is_permitted(rule: Collection[str], user: User) -> bool:
    """Return whether a rule of the settings permits an action to a user.

    Args:
        rule: ids of users and roles, `ADMINS` and `EVERYONE`; one of them must match. An empty rule permits nobody.
    """
    return (
        EVERYONE in rule
        or (ADMINS in rule and user.is_admin)
        or not {user.id, *user.roles}.difference({""}).isdisjoint(rule)
    )


#: A user without rights.
ANONYMOUS_USER = User("", "")


class UserState(dict[str, Any]):
    """User as a JSON object in ADK's state; `str` returns the name.

    ADK replaces `{temp:speaker}` in an agent's instruction by this name.
    """

    def __str__(self) -> str:
        return str(self["name"])


def to_user_state(user: User) -> UserState:
    """Return a user as a JSON object, for the key `USER_STATE_KEY` of ADK's state.

    The name is cleaned by `clean_name`, since an instruction may contain it.
    """
    return UserState(
        id=user.id,
        name=clean_name(user.name, MAX_NAME_LENGTH if user.id else MAX_NAME_LENGTH * _MAX_NAMES),
        platform=user.platform,
        workspace=user.workspace,
        roles=sorted(user.roles),
        is_admin=user.is_admin,
    )


def intersect_rights(users: Iterable[User]) -> User:
    """Return several users, at least one, as one user, with only the roles that all of them have.

    The result is an admin only if all are. For different users the id is empty, so that a rule with a user's id permits
    nothing, even if it has the ids of all. Platform and workspace are those of the first.
    """
    first, *others = users
    for other in others:
        first = User(
            id=first.id if first.id == other.id else "",
            name=first.name if first.id == other.id else f"{first.name}, {other.name}",
            roles=first.roles & other.roles,
            is_admin=first.is_admin and other.is_admin,
            platform=first.platform,
            workspace=first.workspace,
        )
    return first
