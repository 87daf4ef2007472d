"""How much of a conversation is sent to the model, and why not more of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.sessions.codec import role_of
from core.sessions.history import DEFAULT_BUDGET, TURNS, Entry, is_user_message

#: Why older messages are left out: the budget is full, or there are as many newer turns as are sent.
Bound = Literal["", "tokens", "turns"]


@dataclass(frozen=True, slots=True)
class Extent:
    """What of a conversation is sent.

    Attributes:
        messages: how many, of those in which people and agents have said something.
        tokens: what all that is sent costs.
        budget: what it may cost.
        bound: why older ones are left out; empty if none are.
        until: the id of the newest row that there was.
        covers: the id of the newest row that a summary tells of, which is sent in the place of what it tells of; 0 if
            there is none.
    """

    messages: int = 0
    tokens: int = 0
    budget: int = 0
    bound: Bound = ""
    until: int = 0
    covers: int = 0


def extent(entries: Sequence[Entry], kept: Sequence[Entry], *, budget: int | None, until: int) -> Extent:
    """Of these, those were kept."""
    turns = sum(is_user_message(entry.event) for entry in kept)
    bound: Bound = "" if len(kept) == len(entries) else "turns" if turns >= TURNS else "tokens"
    messages, tokens = sum(map(_says, kept)), sum(entry.tokens for entry in kept)
    return Extent(messages, tokens, budget or DEFAULT_BUDGET, bound, until)


def _says(entry: Entry) -> bool:
    content = entry.event.content
    parts = (content and content.parts) or ()
    return role_of(entry.event) in ("user", "assistant") and any(part.text and not part.thought for part in parts)
