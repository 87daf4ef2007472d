"""What people do when they talk to the bot, and what a model does about it.

What a message is follows from its name (see `benchmarks.soak.script`), so that who says it and who answers it know the
same.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.soak.script import Model, answer, names
from sandbox.models import CallTool, Pause, ReceivedRequest, Turn

#: A question, one that needs a tool, one with a file, one that is edited at once, one before which all is started over.
Kind = Literal["plain", "tool", "file", "edited", "afresh"]

#: How many of a hundred are which.
KINDS: Mapping[Kind, int] = {"plain": 65, "tool": 12, "file": 10, "edited": 8, "afresh": 5}

#: Of the platform's seconds: how long a model thinks, and how many words it says in one, in how many deltas.
THINKS, WORDS, DELTAS = 0.8, 40, 4


def kind(name: str) -> Kind:
    """What the message of that name is."""
    return random.Random(f"what is {name}").choices(list(KINDS), list(KINDS.values()))[0]


def papers(name: str) -> dict[str, str]:
    """The files that come with a message."""
    return {"notes.txt": paper(name)} if kind(name) == "file" else {}


def paper(name: str) -> str:
    """What is in its file: nothing that could be taken for a name."""
    return f"The notes of {name.replace('-', ' and ')}."


@dataclass
class Speaker(Model):
    """Answers as a model does: it thinks, uses a tool, and speaks at a pace.

    Attributes:
        speed: how many times faster than the platform's the time passes.
    """

    speed: float = 1.0
    _begins: dict[str, str] = field(default_factory=dict)

    def starts_over(self, name: str) -> None:
        """Nothing from before the message `name` is known any more in its session."""
        self._begins[name.partition("-")[0]] = name

    def __call__(self, asked: ReceivedRequest) -> Turn:
        self.look(asked)
        ids = names(asked.text)
        thinks = Pause(THINKS / self.speed)
        for name in ids:
            if kind(name) == "file" and paper(name) not in asked.text:
                self.faults.append(f"{name} came without its file")
        if any(kind(name) == "tool" for name in ids) and not asked.results:
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
