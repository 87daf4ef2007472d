"""Routing of sessions to agents.

The agent that people chose for the session answers, if it may be chosen at that place. Otherwise the settings have an
agent for the place, or the default agent answers. A place has several names (`Location.get_names`), such as the ids of
channel and server and the word `dm`; the agent for the narrowest name answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """An agent that people may choose, with its models and places.

    Attributes:
        models: the full names (such as `openai/NAME`) of the models that may be chosen for the agent, the default one
            first.
        description: the purpose of the agent, in one line.
        selectable_at: the names of the places at which people may choose the agent (see `Location.get_names`); None for
            all, empty for none.
    """

    name: str
    models: tuple[str, ...]
    description: str = ""
    selectable_at: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class AgentRouter:
    """Configured agents, and the choice of the agent that answers at a place.

    `places` are the names of one place, the narrowest first.

    Attributes:
        default: the name of the agent that answers if neither people nor the settings choose one. All sessions are
            stored under this name.
        agent_by_place: from the settings: the agent that answers, by a name of the place (see `Location.get_names`).
    """

    default: str
    profiles: Mapping[str, AgentProfile] = field(default_factory=lambda: MappingProxyType({}))
    agent_by_place: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def get_agent_at(self, places: Sequence[str]) -> str:
        """Return the name of the agent that answers at a place if people chose none."""
        return next((self.agent_by_place[place] for place in places if place in self.agent_by_place), self.default)

    def resolve_agent(self, chosen: str | None, places: Sequence[str]) -> str:
        """Return `chosen`, if that agent may be chosen at the place; else the place's agent."""
        return chosen if chosen is not None and chosen in self.list_selectable(places) else self.get_agent_at(places)

    def list_selectable(self, places: Sequence[str]) -> list[str]:
        """Return the names of the agents that may be chosen at a place.

        The agent that answers if people chose none comes first, even if `selectable_at` excludes it. The others have
        the order of `profiles`.
        """
        routed = self.get_agent_at(places)
        selectable = (name for name, agent in self.profiles.items() if _is_selectable_at(agent, places))
        return list(dict.fromkeys((routed, *selectable)))

    def get_description(self, name: str) -> str:
        """Return an agent's description; empty for an unknown agent."""
        return self.profiles[name].description if name in self.profiles else ""


def _is_selectable_at(agent: AgentProfile, places: Sequence[str]) -> bool:
    return agent.selectable_at is None or not agent.selectable_at.isdisjoint(places)
