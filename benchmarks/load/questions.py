"""Messages of users, and answers of the model.

The name of a message determines its kind (see `benchmarks.soak.script`), so that users and model agree on it.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.soak.script import Model, answer, names
from sandbox.models import CallTool, Pause, ReceivedRequest, Turn

#: Plain question, question for a tool, with a file, with an immediate edit, and after a reset.
Kind = Literal["plain", "tool", "file", "edited", "afresh"]

#: Percentage of each kind.
KINDS: Mapping[Kind, int] = {"plain": 65, "tool": 12, "file": 10, "edited": 8, "afresh": 5}

#: The model's thinking time in platform seconds, and its words and deltas per platform second.
THINKS, WORDS, DELTAS = 0.8, 40, 4


def kind(name: str) -> Kind:
    """Return the kind of the message with this name."""
    return random.Random(f"what is {name}").choices(list(KINDS), list(KINDS.values()))[0]


def papers(name: str) -> dict[str, str]:
    """Return the files of a message."""
    return {"notes.txt": paper(name)} if kind(name) == "file" else {}


def paper(name: str) -> str:
    """Return the text of the file, which contains no message name."""
    return f"The notes of {name.replace('-', ' and ')}."


@dataclass
class Speaker(Model):
    """Model that thinks, calls a tool, and streams at a pace.

    Attributes:
        speed: factor between platform time and real time.
    """

    speed: float = 1.0
    _begins: dict[str, str] = field(default_factory=dict)

    def starts_over(self, name: str) -> None:
        """Record that the message `name` follows a reset of its session."""
        self._begins[name.partition("-")[0]] = name

    def __call__(self, asked: ReceivedRequest) -> Turn:
        self.look(asked)
        ids = names(asked.text)
        thinks = Pause(THINKS / self.speed)
        for name in ids:
            if kind(name) == "file" and paper(name) not in asked.text:
                self.faults.append(f"{name} came without its file")
        if any(kind(name) == "tool" for name in ids) and not asked.tool_results:
            return [thinks, CallTool("current_time", {"timezone": "Europe/Paris"})]
        seconds = len(answer(ids).split()) / WORDS
        pieces = max(2, round(seconds * DELTAS))
        return [thinks, self.say(ids, pieces, seconds / pieces / self.speed)]

    def look(self, asked: ReceivedRequest) -> None:
        super().look(asked)
        for name in (name for role, text in asked.messages if role == "user" for name in names(text)):
            session, _, number = name.partition("-")
            begins = self._begins.get(session)
            if begins is not None and int(number) < int(begins.partition("-")[2]):
                self.faults.append(f"{name} is known still, though all was started over before {begins}")
