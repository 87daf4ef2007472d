"""Who says what a turn is asked: kept beside it, since its text has names alone, and those are people's to choose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: What stands between the parts of a text.
BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Spoken:
    """What people say to the agent in one turn.

    Attributes:
        parts: who says each part of it, and how: a message, or with nobody's id what others have said around it.
        people: what those go by in it who have said any of it, by their ids.
    """

    parts: tuple[tuple[str, str], ...]
    people: Mapping[str, str]

    @property
    def text(self) -> str:
        return BETWEEN.join(words for _, words in self.parts)

    @property
    def own(self) -> str:
        """What is said to the agent, without who says it and what others have said around it."""
        said = (words.removeprefix(f"{self.people.get(who, who)}: ") for who, words in self.parts if who)
        return BETWEEN.join(said)

    def to_json(self) -> dict[str, Any]:
        """All but the text, which is the event's."""
        return {"people": dict(self.people), "parts": [[who, len(words)] for who, words in self.parts]}

    @classmethod
    def of(cls, text: str, kept: Any) -> "Spoken | None":
        """What `to_json` made, with the text that it was made of; nothing if it is of another one."""
        if not isinstance(kept, dict):
            return None
        parts, at = list[tuple[str, str]](), 0
        for who, length in kept["parts"]:
            parts.append((who, text[at : at + length]))
            at += length + len(BETWEEN)
        spoken = cls(tuple(parts), kept["people"])
        return spoken if spoken.text == text else None
