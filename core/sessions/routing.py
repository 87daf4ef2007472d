"""Routing of sessions to agents.

The agent that people chose answers, if it may be chosen at that place. Otherwise the rule for the place decides, the
narrowest first, and else the default. A place has names (`Location.get_names`): ids of channels and servers, and words
such as `dm`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """An agent as people see it when they choose one.

    Attributes:
        models: the full names of the models that may be chosen for it, the default first.
        description: its purpose, in one line.
        selectable_at: names of the places at which people may choose it; None for all, empty for none.
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
        profiles: the agents by name.
        agent_by_place: the name of the agent that answers at a place, by a name of the place.
    """

    default: str
    profiles: Mapping[str, AgentProfile] = field(default_factory=lambda: MappingProxyType({}))
    agent_by_place: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def get_agent_at(self, places: Sequence[str]) -> str:
        """Return the name of the agent that answers at a place without a choice.

        Args:
            places: the names of the place, the narrowest first.
        """
        return next((self.agent_by_place[place] for place in places if place in self.agent_by_place), self.default)

    def resolve_agent(self, chosen: str | None, places: Sequence[str]) -> str:
        """Return the name of the agent that answers.

        Args:
            chosen: the name of the agent that people chose; None without a choice. One that is no longer allowed is
                ignored.
            places: the names of the place, the narrowest first.
        """
        return chosen if chosen is not None and chosen in self.list_selectable(places) else self.get_agent_at(places)

    def list_selectable(self, places: Sequence[str]) -> list[str]:
        """Return the names of the agents that may be chosen at a place.

        The one that answers without a choice comes first.
        """
        routed = self.get_agent_at(places)
        selectable = (name for name, agent in self.profiles.items() if _is_selectable_at(agent, places))
        return list(dict.fromkeys((routed, *selectable)))

    def get_description(self, name: str) -> str:
        """Return an agent's description; empty for an unknown agent."""
        return self.profiles[name].description if name in self.profiles else ""


def _is_selectable_at(agent: AgentProfile, places: Sequence[str]) -> bool:
    return agent.selectable_at is None or not agent.selectable_at.isdisjoint(places)
