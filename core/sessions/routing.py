"""Routing of sessions to agents.

The chosen agent answers, as long as it may be chosen at that place. Otherwise the rule for the place decides, the
narrowest first, and else the default. A place is a word of the channel; each message carries the words of its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """An agent as people see it.

    Attributes:
        description: its purpose, in one line.
        models: the full names of the models that may be chosen for it, the default first.
        selectable_at: the places at which people may choose it; None for all.
    """

    name: str
    models: tuple[str, ...]
    description: str = ""
    selectable_at: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class AgentRouter:
    """The agents by name, and the rules by place.

    Attributes:
        default: the name of the agent without a choice and a rule; sessions are stored under it.
        agent_by_place: the name of the agent that answers at a place.
    """

    default: str
    profiles: Mapping[str, AgentProfile] = field(default_factory=lambda: MappingProxyType({}))
    agent_by_place: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def get_agent_at(self, places: Sequence[str]) -> str:
        """Return the agent that answers without a choice.

        Args:
            places: the names of the place, the narrowest first.
        """
        return next((self.agent_by_place[spot] for spot in places if spot in self.agent_by_place), self.default)

    def resolve_agent(self, chosen: str | None, places: Sequence[str]) -> str:
        """Return the agent that answers. A choice that is no longer allowed does not count."""
        return chosen if chosen is not None and chosen in self.list_selectable(places) else self.get_agent_at(places)

    def list_selectable(self, places: Sequence[str]) -> list[str]:
        """Return the agents that may be chosen, the one that answers without a choice first."""
        routed = self.get_agent_at(places)
        selectable = (name for name, agent in self.profiles.items() if _is_selectable_at(agent, places))
        return list(dict.fromkeys((routed, *selectable)))

    def get_description(self, name: str) -> str:
        """Return an agent's description; empty without one."""
        return self.profiles[name].description if name in self.profiles else ""


def _is_selectable_at(agent: AgentProfile, places: Sequence[str]) -> bool:
    return agent.selectable_at is None or not agent.selectable_at.isdisjoint(places)
