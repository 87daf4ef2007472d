"""Waits of the users, measured at the platforms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from benchmarks.soak.script import answered, begun
from benchmarks.soak.sessions import Told
from benchmarks.soak.users import Session
from channels.i18n.messages import RESET_DONE

#: Time of a message: during a deploy (or unanswered at its start), within a minute after one, or any other time.
Phase = Literal["before", "during", "after"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the answer of one message.

    Attributes:
        first: seconds until the first text of the answer; infinite without one.
        whole: seconds until the complete answer.
    """

    platform: str
    phase: Phase
    first: float
    whole: float


def waits(session: Session, deploys: Sequence[tuple[float, float]], minute: float) -> list[Wait]:
    """Return the waits for each message of a session.

    Args:
        deploys: start and end of each deploy.
        minute: real seconds of a platform minute.
    """
    first, whole = dict[str, float](), dict[str, float]()
    for at, text in _shown(session.place.told()):
        for times, found in ((first, begun(text)), (whole, answered(text))):
            for name in found:
                times.setdefault(name, at)
    return [
        Wait(
            session.platform,
            _phase(said_at, whole.get(name, inf), deploys, minute),
            first.get(name, inf) - said_at,
            whole.get(name, inf) - said_at,
        )
        for name, said_at in session.said_at.items()
    ]


def _shown(told: Iterable[Told]) -> Iterable[tuple[float, str]]:
    """Return the visible texts after each change, oldest first."""
    answers = [one for one in told if one.text != RESET_DONE]
    changes = sorted((at, place, text) for place, one in enumerate(answers) for at, text in one.versions)
    now = [""] * len(answers)
    for at, place, text in changes:
        now[place] = text
        yield at, "".join(now)


def _phase(said: float, whole: float, deploys: Sequence[tuple[float, float]], minute: float) -> Phase:
    if any(said < end and whole > begin for begin, end in deploys):
        return "during"
    return "after" if any(end <= said < end + minute for _, end in deploys) else "before"
