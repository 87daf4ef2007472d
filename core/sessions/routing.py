"""Which of the bot's agents answers where.

A conversation is answered by the agent that was chosen for it, while that one may be chosen there; else by the one that
a rule names for its place, the narrowest first; else by the default. What a place is called is the channel's business:
here it is a word, and each message tells the words for where it was said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """One of them, as people know it.

    Attributes:
        description: what it is there for, in a line.
        models: the full names of what may be chosen for it, the default first; one, if nothing may.
        chosen_at: the places at which people may choose it; None for all.
    """

    name: str
    models: tuple[str, ...]
    description: str = ""
    selectable_at: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class AgentRouter:
    """All of them, by their names.

    Attributes:
        default: the name of the one that answers where nothing else is said, and of what conversations are kept under.
        places: by place, the name of the one that answers there.
    """

    default: str
    profiles: Mapping[str, AgentProfile] = field(default_factory=lambda: MappingProxyType({}))
    agent_by_place: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def get_agent_at(self, places: Sequence[str]) -> str:
        """The one that answers where nothing was chosen.

        Args:
            spots: the names of the place, the narrowest first: see `InboxMessage`.
        """
        return next((self.agent_by_place[spot] for spot in places if spot in self.agent_by_place), self.default)

    def resolve_agent(self, chosen: str | None, places: Sequence[str]) -> str:
        """The one that answers where `chosen` was chosen, if anything was. A choice that may not be made any more, for
        the agent is gone or is not for that place, does not count.
        """
        return chosen if chosen is not None and chosen in self.list_selectable(places) else self.get_agent_at(places)

    def list_selectable(self, places: Sequence[str]) -> list[str]:
        """Those that may be chosen there; the one that answers there without a choice always may, and comes first."""
        here = self.get_agent_at(places)
        may = (name for name, agent in self.profiles.items() if _is_selectable_at(agent, places))
        return list(dict.fromkeys((here, *may)))

    def get_description(self, name: str) -> str:
        """What an agent is there for; empty if it does not tell."""
        return self.profiles[name].description if name in self.profiles else ""


def _is_selectable_at(agent: AgentProfile, places: Sequence[str]) -> bool:
    return agent.selectable_at is None or not agent.selectable_at.isdisjoint(places)
