"""Waiting times of the users for their answers, measured at the platforms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from benchmarks.soak.script import find_answered, find_started
from benchmarks.soak.sessions import SoakBotMessage
from benchmarks.soak.users import UserSession
from channels.i18n.messages import RESET_DONE

#: Time of a message: during a deploy (or unanswered at its start), within a minute after one, or any other time.
Phase = Literal["other", "during", "after"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Time from one user message to its answer, in real seconds.

    Attributes:
        platform: "slack" or "discord".
        phase: "during" if a deploy overlaps the time from the message to its complete answer. Else "after" if the
            message was sent within a platform minute (60 / `LoadConfig.speed` real seconds) after a deploy. "other" at
            any other time.
        first: seconds until the first text of the answer; infinite without one.
        complete: seconds until the complete answer; infinite without one.
    """

    platform: str
    phase: Phase
    first: float
    complete: float


def measure_waits(session: UserSession, deploys: Sequence[tuple[float, float]], minute: float) -> list[Wait]:
    """Return the wait for the answer to each message of a session, oldest first.

    Args:
        deploys: start and end of each deploy (monotonic seconds).
        minute: real seconds of a platform minute: 60 / `LoadConfig.speed`.
    """
    first, complete = dict[str, float](), dict[str, float]()
    for at, text in _visible_texts(session.place.list_bot_messages()):
        for times, found in ((first, find_started(text)), (complete, find_answered(text))):
            for name in found:
                times.setdefault(name, at)
    return [
        Wait(
            session.platform,
            _phase(sent_at, complete.get(name, inf), deploys, minute),
            first.get(name, inf) - sent_at,
            complete.get(name, inf) - sent_at,
        )
        for name, sent_at in session.sent_at.items()
    ]


def _visible_texts(messages: Iterable[SoakBotMessage]) -> Iterable[tuple[float, str]]:
    """Yield (time, text) after each change of one of the bot's messages, oldest first.

    The time is in monotonic seconds. The text joins the current texts of all messages; those that confirm a reset are
    left out.
    """
    answers = [message for message in messages if message.text != RESET_DONE]
    changes = sorted((at, number, text) for number, answer in enumerate(answers) for at, text in answer.versions)
    texts = [""] * len(answers)
    for at, number, text in changes:
        texts[number] = text
        yield at, "".join(texts)


def _phase(sent: float, complete: float, deploys: Sequence[tuple[float, float]], minute: float) -> Phase:
    if any(sent < end and complete > begin for begin, end in deploys):
        return "during"
    return "after" if any(end <= sent < end + minute for _, end in deploys) else "other"
