"""Which of the bot's agents answers where.

A conversation is answered by the agent that was chosen for it, while that one may be chosen there; else by the one that
a rule names for its place, the narrowest first; else by the default. What a place is called is the channel's business:
here it is a word, and each message tells the words for where it was said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Agent:
    """One of them, as people know it.

    Attributes:
        description: what it is there for, in a line.
        models: the full names of what may be chosen for it, the default first; one, if nothing may.
        chosen_at: the places at which people may choose it; None for all.
    """

    name: str
    models: tuple[str, ...]
    description: str = ""
    chosen_at: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Agents:
    """All of them, by their names.

    Attributes:
        default: the name of the one that answers where nothing else is said, and of what conversations are kept under.
        places: by place, the name of the one that answers there.
    """

    default: str
    known: Mapping[str, Agent] = field(default_factory=lambda: MappingProxyType({}))
    places: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def at(self, spots: Sequence[str]) -> str:
        """The one that answers where nothing was chosen.

        Args:
            spots: the names of the place, the narrowest first: see `InboxMessage`.
        """
        return next((self.places[spot] for spot in spots if spot in self.places), self.default)

    def answering(self, chosen: str | None, spots: Sequence[str]) -> str:
        """The one that answers where `chosen` was chosen, if anything was. A choice that may not be made any more, for
        the agent is gone or is not for that place, does not count.
        """
        return chosen if chosen is not None and chosen in self.offered(spots) else self.at(spots)

    def offered(self, spots: Sequence[str]) -> list[str]:
        """Those that may be chosen there; the one that answers there without a choice always may, and comes first."""
        here = self.at(spots)
        may = (name for name, agent in self.known.items() if _is_for(agent, spots))
        return list(dict.fromkeys((here, *may)))

    def described(self, name: str) -> str:
        """What an agent is there for; empty if it does not tell."""
        return self.known[name].description if name in self.known else ""


def _is_for(agent: Agent, spots: Sequence[str]) -> bool:
    return agent.chosen_at is None or not agent.chosen_at.isdisjoint(spots)
