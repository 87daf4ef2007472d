"""Messages of users, and answers of the model.

The name of a message decides its kind, so that users and model agree on it (see `benchmarks.soak.script`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.soak.script import CheckingModel, answer, find_names
from sandbox.models import CallTool, Pause, ReceivedRequest, Turn

#: Plain question, question for a tool, with a file, with an immediate edit, and after a reset.
MessageKind = Literal["plain", "tool", "file", "edit", "reset"]

#: Percentage of each kind.
KINDS: Mapping[MessageKind, int] = {"plain": 65, "tool": 12, "file": 10, "edit": 8, "reset": 5}

#: The model's thinking time in platform seconds, and its words and deltas per platform second.
THINKING_SECONDS, WORDS_PER_SECOND, DELTAS_PER_SECOND = 0.8, 40, 4


def get_kind(name: str) -> MessageKind:
    """Return the kind of the message with this name, the same at each call."""
    return random.Random(f"what is {name}").choices(list(KINDS), list(KINDS.values()))[0]


def get_files(name: str) -> dict[str, str]:
    """Return the texts of a message's files by file name; empty unless its kind is "file"."""
    return {"notes.txt": get_file_text(name)} if get_kind(name) == "file" else {}


def get_file_text(name: str) -> str:
    """Return the text of the file, which contains no message name."""
    return f"The notes of {name.replace('-', ' and ')}."


@dataclass
class LoadModel(CheckingModel):
    """Scripted model that pauses, calls a tool where the question needs one, and streams.

    Attributes:
        speed: platform seconds in a real second.
    """

    speed: float = 1.0
    _first_after_reset: dict[str, str] = field(default_factory=dict)

    def record_reset(self, name: str) -> None:
        """Record that message `name` is the first one after a reset: older ones must not reach the model."""
        self._first_after_reset[name.partition("-")[0]] = name

    def __call__(self, asked: ReceivedRequest) -> Turn:
        self.check_history(asked)
        ids = find_names(asked.text)
        thinking = Pause(THINKING_SECONDS / self.speed)
        for name in ids:
            if get_kind(name) == "file" and get_file_text(name) not in asked.text:
                self.faults.append(f"{name} came without its file")
        if any(get_kind(name) == "tool" for name in ids) and not asked.tool_results:
            return [thinking, CallTool("current_time", {"timezone": "Europe/Paris"})]
        seconds = len(answer(ids).split()) / WORDS_PER_SECOND
        pieces = max(2, round(seconds * DELTAS_PER_SECOND))
        return [thinking, self.build_answer(ids, pieces, seconds / pieces / self.speed)]

    def check_history(self, asked: ReceivedRequest) -> None:
        super().check_history(asked)
        for name in (name for role, text in asked.messages if role == "user" for name in find_names(text)):
            session, _, number = name.partition("-")
            first = self._first_after_reset.get(session)
            if first is not None and int(number) < int(first.partition("-")[2]):
                self.faults.append(f"{name} reached the model after the reset before {first}")
