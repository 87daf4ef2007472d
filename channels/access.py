"""The door: who may speak with the bot, and where."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from channels.i18n import messages as words
from core.identity import BOT_PREFIX, Actor, Location, User

#: What a list of channels calls direct messages.
DIRECT = "channel:dm"

#: The kinds of which a list names places. What it names of people are users and roles.
_PLACES = ("workspace", "guild", "channel")
_PEOPLE = ("user:", "role:")


class Admission(Enum):
    """Whether somebody may speak, and why not."""

    ADMITTED = auto()
    A_BOT = auto()
    NOT_HERE = auto()
    NOT_YOU = auto()

    @property
    def sentence(self) -> str:
        return words.NOT_HERE if self is Admission.NOT_HERE else words.NOT_YOU


@dataclass(frozen=True, slots=True)
class Rules:
    """Those of one platform.

    Attributes:
        allow: whom and what the door is open to, each as `kind:id`. The kinds are `user`, `role`, `channel` (a
            category, or the parent of threads, stands for what is in it; `DIRECT` for direct messages), and `workspace`
            or `guild`. A kind of which none is named is open to all; of users and roles, one will do.
        block: whom and what it is closed to, whatever else is said.
        served: the servers in which the bot speaks at all, their direct messages aside; all if none is named.
        external: whether people from outside are served, who visit a shared channel. Those whose workspace is allowed
            by name are.
        bots: whether other bots are served.
    """

    allow: frozenset[str] = frozenset()
    block: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()
    external: bool = False
    bots: bool = False

    def ids(self, *kinds: str) -> set[str]:
        """The ids of these kinds that are named."""
        named = (rule.partition(":") for rule in self.allow | self.block)
        return {id_ for kind, _, id_ in named if kind in kinds}

    def is_open(self, workspace: str) -> bool:
        """Whether anybody may speak in a workspace or server."""
        where = {f"{kind}:{workspace}" for kind in ("workspace", "guild")}
        is_served = not self.served or workspace in self.served
        return (
            is_served and not where & self.block and all(_is_in(where, kind, self) for kind in ("workspace", "guild"))
        )


class Door:
    """Knows who is admitted.

    Args:
        rules: by the name of the platform.
        admins: the ids of the people, and of the roles, that run the bot. They need be on no list of people.
        others: what else is named somewhere, so that it is to be known who has these roles.
    """

    def __init__(
        self, rules: Mapping[str, Rules] | None = None, admins: Collection[str] = (), others: Collection[str] = ()
    ) -> None:
        self._rules = rules or {}
        self._admins = frozenset(admins)
        self._others = frozenset(others)

    def rules(self, platform: str) -> Rules:
        return self._rules.get(platform, Rules())

    def names(self, platform: str) -> set[str]:
        """The ids that anything depends on there."""
        rules = self.rules(platform)
        return {rule.partition(":")[2] for rule in rules.allow | rules.block} | self._admins | self._others

    def is_admin(self, visitor: Actor) -> bool:
        """Whether somebody is one of those who run the bot."""
        return not self._admins.isdisjoint({visitor.author, *visitor.roles})

    def person(self, visitor: Actor, name: str) -> User:
        """Whose rights are asked for when he does something."""
        return User(visitor.author, name, frozenset(visitor.roles), self.is_admin(visitor))

    def admits(self, visitor: Actor, spot: Location) -> Admission:
        """Whether somebody may speak somewhere."""
        rules = self.rules(visitor.platform)
        if visitor.is_bot and not rules.bots:
            return Admission.A_BOT
        who, home, where = set(_names(visitor)), set(_homes(visitor)), set(_places(spot))
        people = {rule for rule in rules.allow if rule.startswith(_PEOPLE)}
        is_stranger = visitor.is_external and not rules.external and not home & rules.allow
        is_unnamed = bool(people) and not who & people and not self.is_admin(visitor)
        if (who | home) & rules.block or is_stranger or is_unnamed:
            return Admission.NOT_YOU
        is_served = not rules.served or not spot.workspace or spot.workspace in rules.served
        if where & rules.block or not is_served or not all(_is_in(where | home, kind, rules) for kind in _PLACES):
            return Admission.NOT_HERE
        return Admission.ADMITTED


def _is_in(places: set[str], kind: str, rules: Rules) -> bool:
    """Whether one of the places is one of those that are named of a kind, if any is."""
    named = {rule for rule in rules.allow if rule.startswith(f"{kind}:")}
    return not named or bool(places & named)


def _names(visitor: Actor) -> Iterator[str]:
    yield f"user:{visitor.author.removeprefix(BOT_PREFIX)}"
    yield from (f"role:{role}" for role in visitor.roles)


def _homes(visitor: Actor) -> Iterator[str]:
    for workspace in visitor.workspaces:
        yield from (f"workspace:{workspace}", f"guild:{workspace}")


def _places(spot: Location) -> Iterator[str]:
    if spot.workspace:
        yield from (f"workspace:{spot.workspace}", f"guild:{spot.workspace}")
    yield from (f"channel:{id_}" for id_ in (spot.channel, *spot.parents) if id_)
    if spot.is_direct:
        yield DIRECT
