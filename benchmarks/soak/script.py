"""Messages of a soak, their answers, and verdicts.

Each message is named by its session and number: `s3-14`. An answer names all its messages and ends with a mark, so that
the visible texts alone reveal lost, doubled and cut answers.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from core.sessions.prompt_text import QUOTE_CLOSE, QUOTE_OPEN
from sandbox.models import ReceivedRequest, Say, Turn

#: Context around a question: messages that may still become questions.
_FRAME = re.compile(rf"{QUOTE_OPEN}.*?{QUOTE_OPEN}End of that{QUOTE_CLOSE}", re.DOTALL)

_ID = re.compile(r"s\d+-\d+")
_BEGINNING = re.compile(rf"«({_ID.pattern}(?:,{_ID.pattern})*)»")
_REPLY = re.compile(rf"«({_ID.pattern}(?:,{_ID.pattern})*)»(.*?)«end»")

#: Interval of answers that need several chunks, and their length in words.
LONG_ONE_IN, LONG_WORDS = 25, 700

#: Number of deltas of an answer, and the seconds between them.
PIECES, PACE = 6, 0.05


def answer(ids: Sequence[str]) -> str:
    """Return the answer to these messages, always the same."""
    dice = random.Random(",".join(ids))
    count = LONG_WORDS if dice.randrange(LONG_ONE_IN) == 0 else dice.randint(3, 60)
    words = (f"w{dice.randrange(1000)}" + ("\n\n" if dice.random() < 0.02 else " ") for _ in range(count))
    return f"«{','.join(ids)}» {''.join(words)}«end»"


@dataclass
class Model:
    """Model that answers and checks the history.

    Attributes:
        faults: descriptions of wrong histories.
        orders: histories with messages out of order.
    """

    faults: list[str] = field(default_factory=list)
    orders: list[list[str]] = field(default_factory=list)

    def __call__(self, asked: ReceivedRequest) -> Turn:
        self.look(asked)
        return self.say(names(asked.text), PIECES, PACE)

    def look(self, asked: ReceivedRequest) -> None:
        """Record the faults of the history."""
        messages = spoken(asked.messages)
        if wrong := history_fault(messages):
            self.faults.append(wrong)
        order = [id_ for role, text in messages if role == "user" for id_ in names(text)]
        if disordered(order):
            self.orders.append(order)

    def say(self, ids: Sequence[str], pieces: int, pace: float) -> Say:
        """Return the answer in pieces with a pause of `pace` seconds."""
        return Say(answer(ids), pieces=pieces, pace=pace)


def spoken(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the texts of a history without tool calls and results."""
    following = [role for role, _ in messages[1:]] + [""]
    calls = [role == "assistant" and after == "tool" for (role, _), after in zip(messages, following, strict=True)]
    return [message for message, is_call in zip(messages, calls, strict=True) if not is_call and message[0] != "tool"]


def names(text: str) -> list[str]:
    """Return the messages that a text names outside its context."""
    return _ID.findall(_FRAME.sub("", text))


def history_fault(messages: Sequence[tuple[str, str]]) -> str:
    """Return the fault of a history; None if it is valid.

    A valid history alternates questions and answers in any order, each once, and ends with a question. It may begin
    with a summary. The request for a summary has one message.
    """
    if messages and not _FRAME.sub("", messages[0][1]).strip():
        messages = messages[1:]
        if not messages:
            return ""
    if [role for role, _ in messages] != ["user", "assistant"] * (len(messages) // 2) + ["user"]:
        return f"roles: {[role for role, _ in messages]}"
    asked = [names(text) for role, text in messages if role == "user"]
    answers = [text for role, text in messages if role == "assistant"]
    for ids, text in zip(asked, answers, strict=False):
        if text != answer(ids):
            return f"{ids} was answered with {text[:80]!r}"
    every = [id_ for ids in asked for id_ in ids]
    return "" if len(every) == len(set(every)) else f"more than once: {every}"


def disordered(ids: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return each message that follows a newer one, with the newer one."""
    return tuple((older, newer) for i, older in enumerate(ids) for newer in ids[:i] if _number(newer) > _number(older))


def squeezed(text: str) -> str:
    """Return a text without white space, which a split into chunks removes."""
    return "".join(text.split())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Visible faults of a session.

    Attributes:
        replies: the number of complete answers.
        lost: messages without an answer.
        doubled: messages with several answers.
        disordered: messages answered after a newer one, with the newer one.
        wrong: texts that are no answer, wrong answers, and answers of other sessions.
        unfinished: the number of the bot's unfinished messages.
    """

    replies: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    disordered: tuple[tuple[str, str], ...]
    wrong: tuple[str, ...]
    unfinished: int = 0


def judge(said: Sequence[str], shown: str, unfinished: int = 0) -> Verdict:
    """Judge the bot's messages in a session.

    Args:
        said: the names of the messages to the bot, in order.
        unfinished: see `Verdict`.
    """
    text = squeezed(shown)
    replies = [(found[0], found[1].split(",")) for found in _REPLY.finditer(text)]
    ids = [id_ for _, answered in replies for id_ in answered]
    wrong = [whole for whole, answered in replies if whole != squeezed(answer(answered)) or set(answered) - set(said)]
    if rest := _REPLY.sub("", text):
        wrong.append(rest)
    return Verdict(
        len(replies),
        tuple(id_ for id_ in said if id_ not in ids),
        tuple(sorted({id_ for id_ in ids if ids.count(id_) > 1})),
        disordered(ids),
        tuple(wrong),
        unfinished,
    )


def is_late(pair: tuple[str, str], heard_at: Mapping[str, float], begun_at: Mapping[str, float]) -> bool:
    """Return whether the older of two messages was received after the newer one's turn began.

    Args:
        heard_at: the delivery time of each message at the platform.
        begun_at: the start of each message's turn.
    """
    older, newer = pair
    return heard_at.get(older, 0.0) > begun_at.get(newer, inf)


def _number(id_: str) -> int:
    return int(id_.partition("-")[2])


def begun(shown: str) -> set[str]:
    """Return the messages with a growing answer."""
    return {id_ for found in _BEGINNING.finditer(squeezed(shown)) for id_ in found[1].split(",")}


def answered(shown: str) -> set[str]:
    """Return the messages with a complete answer."""
    return {id_ for found in _REPLY.finditer(squeezed(shown)) for id_ in found[1].split(",")}
