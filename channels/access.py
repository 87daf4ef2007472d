"""The door: who may speak with the bot, and where."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from channels.i18n import messages as words
from core.identity import BOT_PREFIX, Actor, Location, User

#: What a list of channels calls direct messages.
DIRECT_MESSAGES = "channel:dm"

#: The kinds of which a list names places. What it names of people are users and roles.
_PLACE_KINDS = ("workspace", "guild", "channel")
_USER_KINDS = ("user:", "role:")


class AccessDecision(Enum):
    """Whether somebody may speak, and why not."""

    ALLOWED = auto()
    BOT_DENIED = auto()
    PLACE_DENIED = auto()
    USER_DENIED = auto()

    @property
    def message(self) -> str:
        return words.NOT_HERE if self is AccessDecision.PLACE_DENIED else words.NOT_YOU


@dataclass(frozen=True, slots=True)
class AccessRules:
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
    guilds: frozenset[str] = frozenset()
    allows_external: bool = False
    allows_bots: bool = False

    def list_ids(self, *kinds: str) -> set[str]:
        """The ids of these kinds that are named."""
        named = (rule.partition(":") for rule in self.allow | self.block)
        return {id_ for kind, _, id_ in named if kind in kinds}

    def is_workspace_allowed(self, workspace: str) -> bool:
        """Whether anybody may speak in a workspace or server."""
        where = {f"{kind}:{workspace}" for kind in ("workspace", "guild")}
        is_served = not self.guilds or workspace in self.guilds
        return (
            is_served
            and not where & self.block
            and all(_matches_kind(where, kind, self) for kind in ("workspace", "guild"))
        )


class AccessPolicy:
    """Knows who is admitted.

    Args:
        rules: by the name of the platform.
        admins: the ids of the people, and of the roles, that run the bot. They need be on no list of people.
        others: what else is named somewhere, so that it is to be known who has these roles.
    """

    def __init__(
        self, rules: Mapping[str, AccessRules] | None = None, admins: Collection[str] = (), others: Collection[str] = ()
    ) -> None:
        self._rules = rules or {}
        self._admins = frozenset(admins)
        self._others = frozenset(others)

    def get_rules(self, platform: str) -> AccessRules:
        return self._rules.get(platform, AccessRules())

    def list_ids(self, platform: str) -> set[str]:
        """The ids that anything depends on there."""
        rules = self.get_rules(platform)
        return {rule.partition(":")[2] for rule in rules.allow | rules.block} | self._admins | self._others

    def is_admin(self, visitor: Actor) -> bool:
        """Whether somebody is one of those who run the bot."""
        return not self._admins.isdisjoint({visitor.author, *visitor.roles})

    def to_user(self, visitor: Actor, name: str) -> User:
        """Whose rights are asked for when he does something."""
        return User(visitor.author, name, frozenset(visitor.roles), self.is_admin(visitor))

    def check(self, visitor: Actor, spot: Location) -> AccessDecision:
        """Whether somebody may speak somewhere."""
        rules = self.get_rules(visitor.platform)
        if visitor.is_bot and not rules.allows_bots:
            return AccessDecision.BOT_DENIED
        who, home, where = (
            set(_list_user_rules(visitor)),
            set(_list_workspace_rules(visitor)),
            set(_list_place_rules(spot)),
        )
        people = {rule for rule in rules.allow if rule.startswith(_USER_KINDS)}
        is_stranger = visitor.is_external and not rules.allows_external and not home & rules.allow
        is_unnamed = bool(people) and not who & people and not self.is_admin(visitor)
        if (who | home) & rules.block or is_stranger or is_unnamed:
            return AccessDecision.USER_DENIED
        is_served = not rules.guilds or not spot.workspace or spot.workspace in rules.guilds
        if (
            where & rules.block
            or not is_served
            or not all(_matches_kind(where | home, kind, rules) for kind in _PLACE_KINDS)
        ):
            return AccessDecision.PLACE_DENIED
        return AccessDecision.ALLOWED


def _matches_kind(places: set[str], kind: str, rules: AccessRules) -> bool:
    """Whether one of the places is one of those that are named of a kind, if any is."""
    named = {rule for rule in rules.allow if rule.startswith(f"{kind}:")}
    return not named or bool(places & named)


def _list_user_rules(visitor: Actor) -> Iterator[str]:
    yield f"user:{visitor.author.removeprefix(BOT_PREFIX)}"
    yield from (f"role:{role}" for role in visitor.roles)


def _list_workspace_rules(visitor: Actor) -> Iterator[str]:
    for workspace in visitor.workspaces:
        yield from (f"workspace:{workspace}", f"guild:{workspace}")


def _list_place_rules(spot: Location) -> Iterator[str]:
    if spot.workspace:
        yield from (f"workspace:{spot.workspace}", f"guild:{spot.workspace}")
    yield from (f"channel:{id_}" for id_ in (spot.channel, *spot.parents) if id_)
    if spot.is_direct:
        yield DIRECT_MESSAGES
