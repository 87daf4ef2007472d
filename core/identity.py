"""Users and locations on a platform: the base of access and rights."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

#: Prefix of the author id of a bot.
BOT_PREFIX = "bot:"

#: Key of the author in ADK's state. ADK: `temp:` keys belong to one run and are not stored.
USER_STATE_KEY = "temp:speaker"

#: Key of whether the message is addressed to the bot, in ADK's state.
ADDRESSED_STATE_KEY = "temp:is_addressed"

#: Words of rules beside ids of users and roles: those who run the bot, and everybody.
ADMINS, EVERYONE = "admins", "everyone"

#: Rules for approvers: the author of the question, or anybody else.
AUTHOR, OTHERS = "author", "others"

#: Name of the built-in agent. ADK shows a model the messages of an agent with another name as another agent's.
DEFAULT_AGENT_NAME = "parley"

#: Author of stored rows that name none; also a former name of the built-in agent.
FALLBACK_AUTHOR = "lango_agent"


def current_author(author: str) -> str:
    """Return the author of a stored message, with the current name of the built-in agent.

    Other authors are returned unchanged.
    """
    return DEFAULT_AGENT_NAME if author == FALLBACK_AUTHOR else author


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a message or interaction, as the platform knows them.

    Attributes:
        platform: the name of the adapter that received it.
        author: the platform's id; of a bot, after `BOT_PREFIX`.
        roles: the ids of their roles on the platform.
        workspaces: the ids of the known workspaces or servers that they belong to.
        is_external: whether they are a guest from another workspace in a shared channel.
    """

    platform: str
    author: str
    roles: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    is_external: bool = False

    @classmethod
    def from_json(cls, data: object) -> "Actor":
        """Return the actor in the JSON of `dataclasses.asdict`.

        Raises:
            ValueError: the data is no actor.
        """
        return _VISITOR.validate_python(data)

    @property
    def is_bot(self) -> bool:
        return self.author.startswith(BOT_PREFIX)


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a message or interaction on a platform.

    Attributes:
        workspace: the id of the workspace or server; empty for Discord's direct messages.
        channel: the id of the channel or thread.
        parents: the ids of its parents: a thread's channel, a channel's category.
        is_direct: whether it is a direct message to the bot.
    """

    workspace: str = ""
    channel: str = ""
    parents: tuple[str, ...] = ()
    is_direct: bool = False

    def get_names(self, platform: str) -> tuple[str, ...]:
        """Return the names of the place that rules in settings use, the narrowest first.

        These are ids, and for direct messages `PLATFORM:dm` and `dm`.
        """
        direct = (f"{platform}:dm", "dm") if self.is_direct else ()
        return tuple(filter(None, (self.channel, *direct, *self.parents, self.workspace)))

    @classmethod
    def from_json(cls, data: object) -> "Location":
        """Return the location in the JSON of `dataclasses.asdict`.

        Raises:
            ValueError: the data is no location.
        """
        return _SPOT.validate_python(data)


_VISITOR, _SPOT = TypeAdapter(Actor), TypeAdapter(Location)

#: A location of which nothing is known.
UNKNOWN_LOCATION = Location()


@dataclass(frozen=True, slots=True)
class User:
    """A user of the bot, with the rights that rules are checked against.

    Attributes:
        id: the platform's id; empty for several users at once.
        name: the display name.
        roles: the ids of their roles.
        is_admin: whether they run the bot.
        platform: the name of the adapter that received their message.
        workspace: the id of the workspace or server in which they wrote it.
    """

    id: str
    name: str
    roles: frozenset[str] = frozenset()
    is_admin: bool = False
    platform: str = ""
    workspace: str = ""


def is_permitted(rule: Collection[str], user: User) -> bool:
    """Return whether a rule permits a user.

    Args:
        rule: ids of users and roles, `ADMINS` and `EVERYONE`; one match is enough.
    """
    return (
        EVERYONE in rule
        or (ADMINS in rule and user.is_admin)
        or not {user.id, *user.roles}.difference({""}).isdisjoint(rule)
    )


#: A user without rights.
ANONYMOUS = User("", "")


class UserState(dict[str, Any]):
    """User as a JSON value in ADK's state; `str` returns the name.

    So `{temp:speaker}` in an instruction becomes the name.
    """

    def __str__(self) -> str:
        return str(self["name"])


def to_user_state(user: User) -> UserState:
    """Return a user as the value of `USER_STATE_KEY` in ADK's state."""
    return UserState(
        id=user.id,
        name=user.name,
        platform=user.platform,
        workspace=user.workspace,
        roles=sorted(user.roles),
        is_admin=user.is_admin,
    )


def intersect_rights(users: Iterable[User]) -> User:
    """Return several users as one, with the rights that all of them have.

    Different users have an empty id, and their names joined by commas.

    Args:
        users: at least one.
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
