"""Access policy: the users and places that the bot answers."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from channels.i18n import messages as words
from core.messages.identity import BOT_PREFIX, Actor, Location, User

#: The entry for direct messages in a list of channels.
DM_RULE = "channel:dm"

#: The kinds of rules for places, and the prefixes of rules for users.
_PLACE_KINDS = ("workspace", "guild", "channel")
_USER_KINDS = ("user:", "role:")


class AccessDecision(Enum):
    """Result of an access check."""

    ALLOWED = auto()
    BOT_DENIED = auto()
    PLACE_DENIED = auto()
    USER_DENIED = auto()

    @property
    def message(self) -> str:
        """The untranslated sentence that tells a user why they have no access; do not read it for `ALLOWED`."""
        return words.PLACE_NOT_ALLOWED if self is AccessDecision.PLACE_DENIED else words.USER_NOT_ALLOWED


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Access rules of one platform.

    Attributes:
        allow: the allowed users and places, each as `kind:id`. The kinds are `user`, `role`, `channel` (a category or a
            channel includes what is below it; `DM_RULE` for direct messages), and `workspace` or `guild`. A kind
            without a rule allows all; of users and roles, one match is enough.
        block: the denied users and places, as in `allow`; they take precedence over `allow`.
        guilds: the ids of the only workspaces or servers in which the bot answers; empty for all. Direct messages are
            not affected.
        allows_external: whether people from other workspaces are allowed in a shared channel. People of a workspace
            that `allow` names always are.
    """

    allow: frozenset[str] = frozenset()
    block: frozenset[str] = frozenset()
    guilds: frozenset[str] = frozenset()
    allows_external: bool = False
    allows_bots: bool = False

    def list_ids(self, *kinds: str) -> set[str]:
        """Return the ids, without their kind, that the rules of these kinds name."""
        named = (rule.partition(":") for rule in self.allow | self.block)
        return {id_ for kind, _, id_ in named if kind in kinds}

    def is_workspace_allowed(self, workspace: str) -> bool:
        """Return whether the bot may be used at all in a workspace or server."""
        names = {f"{kind}:{workspace}" for kind in ("workspace", "guild")}
        is_served = not self.guilds or workspace in self.guilds
        return (
            is_served
            and not names & self.block
            and all(_matches_kind(names, kind, self) for kind in ("workspace", "guild"))
        )


class AccessPolicy:
    """Access rules of all platforms, and the administrators of the bot.

    Args:
        rules: the rules by the name of the platform; a platform without rules allows all but bots and external users.
        admins: the ids of the users and roles that administer the bot. An `allow` list of users and roles does not
            exclude admins; a `block` rule does.
        other_ids: ids of roles that other settings name; `list_ids` includes them.
    """

    def __init__(
        self,
        rules: Mapping[str, AccessRules] | None = None,
        admins: Collection[str] = (),
        other_ids: Collection[str] = (),
    ) -> None:
        self._rules = rules or {}
        self._admins = frozenset(admins)
        self._other_ids = frozenset(other_ids)

    def get_rules(self, platform: str) -> AccessRules:
        return self._rules.get(platform, AccessRules())

    def list_ids(self, platform: str) -> set[str]:
        """Return all ids of users, roles and places that affect access on a platform, without their kind."""
        rules = self.get_rules(platform)
        return {rule.partition(":")[2] for rule in rules.allow | rules.block} | self._admins | self._other_ids

    def is_admin(self, actor: Actor) -> bool:
        return not self._admins.isdisjoint({actor.author, *actor.roles})

    def to_user(self, actor: Actor, name: str, workspace: str = "") -> User:
        """Return an actor with their rights; `workspace` is that of the place where they act."""
        is_admin = self.is_admin(actor)
        return User(actor.author, name, frozenset(actor.roles), is_admin, actor.platform, workspace)

    def check(self, actor: Actor, location: Location) -> AccessDecision:
        """Return whether a user may use the bot at a place.

        Admins need not be in an `allow` list of users and roles; all other rules hold for them too.
        """
        rules = self.get_rules(actor.platform)
        if actor.is_bot and not rules.allows_bots:
            return AccessDecision.BOT_DENIED
        user_names, workspace_names, place_names = (
            set(_list_user_rules(actor)),
            set(_list_workspace_rules(actor)),
            set(_list_place_rules(location)),
        )
        people = {rule for rule in rules.allow if rule.startswith(_USER_KINDS)}
        is_stranger = actor.is_external and not rules.allows_external and not workspace_names & rules.allow
        is_unnamed = bool(people) and not user_names & people and not self.is_admin(actor)
        if (user_names | workspace_names) & rules.block or is_stranger or is_unnamed:
            return AccessDecision.USER_DENIED
        is_served = not rules.guilds or not location.workspace or location.workspace in rules.guilds
        if (
            place_names & rules.block
            or not is_served
            or not all(_matches_kind(place_names | workspace_names, kind, rules) for kind in _PLACE_KINDS)
        ):
            return AccessDecision.PLACE_DENIED
        return AccessDecision.ALLOWED


def _matches_kind(places: set[str], kind: str, rules: AccessRules) -> bool:
    named = {rule for rule in rules.allow if rule.startswith(f"{kind}:")}
    return not named or bool(places & named)


def _list_user_rules(actor: Actor) -> Iterator[str]:
    yield f"user:{actor.author.removeprefix(BOT_PREFIX)}"
    yield from (f"role:{role}" for role in actor.roles)


def _list_workspace_rules(actor: Actor) -> Iterator[str]:
    for workspace in actor.workspaces:
        yield from (f"workspace:{workspace}", f"guild:{workspace}")


def _list_place_rules(location: Location) -> Iterator[str]:
    if location.workspace:
        yield from (f"workspace:{location.workspace}", f"guild:{location.workspace}")
    yield from (f"channel:{id_}" for id_ in (location.channel, *location.parents) if id_)
    if location.is_direct:
        yield DM_RULE
