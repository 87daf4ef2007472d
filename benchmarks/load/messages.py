"""Messages of the load's users, and the model that answers them.

The name of a message (such as `s3-14`) decides its kind: edit, file, reset, tool or plain. Users and model compute the
kind from the name, so they agree without communication (see `benchmarks.soak.script`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.soak.script import CheckingModel, find_names, get_answer_text
from chatrig.models import CallTool, Pause, ReceivedRequest, ScriptedResponse

#: Kind of a message: plain, needs a tool, has a file, is edited after some seconds, or follows a reset.
MessageKind = Literal["plain", "tool", "file", "edit", "reset"]

#: Percentage of each kind.
KIND_PERCENTAGES: Mapping[MessageKind, int] = {"plain": 65, "tool": 12, "file": 10, "edit": 8, "reset": 5}

#: The model's thinking time in platform seconds, and its words and deltas per platform second.
THINKING_SECONDS, WORDS_PER_SECOND, DELTAS_PER_SECOND = 0.8, 40, 4


def get_kind(name: str) -> MessageKind:
    """Return the kind of a user's message, a fixed pseudo-random choice by its name."""
    return random.Random(f"what is {name}").choices(list(KIND_PERCENTAGES), list(KIND_PERCENTAGES.values()))[0]


def get_files(name: str) -> dict[str, str]:
    """Return the files attached to the message of this name: file name to text.

    It is empty unless `get_kind` returns "file" for the name.
    """
    return {"notes.txt": get_file_text(name)} if get_kind(name) == "file" else {}


def get_file_text(name: str) -> str:
    """Return the text of the file attached to the message of this name.

    The text does not contain the name itself, so a file is not mistaken for a message.
    """
    return f"The notes of {name.replace('-', ' and ')}."


@dataclass
class LoadModel(CheckingModel):
    """Scripted model that pauses, calls a tool if the message needs one, and streams.

    It also adds a fault for a missing file, and for a message from before a reset in the history.

    Attributes:
        speed: platform seconds in a real second.
    """

    speed: float = 1.0
    _first_after_reset: dict[str, str] = field(default_factory=dict)

    def record_reset(self, name: str) -> None:
        """Store `name` as the first message of its session after a reset.

        The session of `s3-14` is `s3`. A later request that contains an older message of the session is a fault.
        """
        self._first_after_reset[name.partition("-")[0]] = name

    def __call__(self, request: ReceivedRequest) -> ScriptedResponse:
        self.check_history(request)
        names = find_names(request.text)
        thinking = Pause(THINKING_SECONDS / self.speed)
        for name in names:
            if get_kind(name) == "file" and get_file_text(name) not in request.text:
                self.faults.append(f"{name} came without its file")
        if any(get_kind(name) == "tool" for name in names) and not request.tool_results:
            return [thinking, CallTool("current_time", {"timezone": "Europe/Paris"})]
        seconds = len(get_answer_text(names).split()) / WORDS_PER_SECOND
        deltas = max(2, round(seconds * DELTAS_PER_SECOND))
        return [thinking, self.build_answer(names, deltas, seconds / deltas / self.speed)]

    def check_history(self, request: ReceivedRequest) -> None:
        super().check_history(request)
        for name in (name for role, text in request.messages if role == "user" for name in find_names(text)):
            session, _, number = name.partition("-")
            first = self._first_after_reset.get(session)
            if first is not None and int(number) < int(first.partition("-")[2]):
                self.faults.append(f"{name} reached the model after the reset before {first}")
