"""What is said, and what is to be answered.

Each message is called by its session and its number in it: `s3-14`. The answer names all messages that it answers, and
ends with a mark, so that what a platform shows tells by itself what was lost, doubled or cut.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from core.sessions.prompt_text import QUOTE_CLOSE, QUOTE_OPEN
from sandbox.models import ReceivedRequest, Say, Turn

#: What stands around a question: words of messages that the bot may be asked yet.
_FRAME = re.compile(rf"{QUOTE_OPEN}.*?{QUOTE_OPEN}End of that{QUOTE_CLOSE}", re.DOTALL)

_ID = re.compile(r"s\d+-\d+")
_BEGINNING = re.compile(rf"«({_ID.pattern}(?:,{_ID.pattern})*)»")
_REPLY = re.compile(rf"«({_ID.pattern}(?:,{_ID.pattern})*)»(.*?)«end»")

#: One answer in so many is long enough for several messages, of about so many words.
LONG_ONE_IN, LONG_WORDS = 25, 700

#: In how many deltas an answer comes, and how many seconds apart.
PIECES, PACE = 6, 0.05


def answer(ids: Sequence[str]) -> str:
    """The one answer to these messages, always the same."""
    dice = random.Random(",".join(ids))
    count = LONG_WORDS if dice.randrange(LONG_ONE_IN) == 0 else dice.randint(3, 60)
    words = (f"w{dice.randrange(1000)}" + ("\n\n" if dice.random() < 0.02 else " ") for _ in range(count))
    return f"«{','.join(ids)}» {''.join(words)}«end»"


@dataclass
class Model:
    """Answers what it is asked, and looks at what it is told of the conversation.

    Attributes:
        faults: histories that were not what was said, in words.
        orders: those in which messages stood in another order than that in which they were said.
    """

    faults: list[str] = field(default_factory=list)
    orders: list[list[str]] = field(default_factory=list)

    def __call__(self, asked: ReceivedRequest) -> Turn:
        self.look(asked)
        return self.say(names(asked.text), PIECES, PACE)

    def look(self, asked: ReceivedRequest) -> None:
        """Note what is wrong with the conversation."""
        messages = spoken(asked.messages)
        if wrong := history_fault(messages):
            self.faults.append(wrong)
        order = [id_ for role, text in messages if role == "user" for id_ in names(text)]
        if disordered(order):
            self.orders.append(order)

    def say(self, ids: Sequence[str], pieces: int, pace: float) -> Say:
        """The answer, in so many pieces, with so many seconds between two of them."""
        return Say(answer(ids), pieces=pieces, pace=pace)


def spoken(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What was said in a conversation, without the calls of tools and their results."""
    following = [role for role, _ in messages[1:]] + [""]
    calls = [role == "assistant" and after == "tool" for (role, _), after in zip(messages, following, strict=True)]
    return [message for message, is_call in zip(messages, calls, strict=True) if not is_call and message[0] != "tool"]


def names(text: str) -> list[str]:
    """The messages that a text names, but for what is told to be known and not to be answered."""
    return _ID.findall(_FRAME.sub("", text))


def history_fault(messages: Sequence[tuple[str, str]]) -> str:
    """What is wrong with a conversation as the model gets it: questions and their answers by turns, in whichever order,
    each once, and at its end the question that is to be answered. Before all else, there may be a summary; and what is
    to be summed up comes alone.
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
    """Each message that stands behind a newer one, and that newer one."""
    return tuple((older, newer) for i, older in enumerate(ids) for newer in ids[:i] if _number(newer) > _number(older))


def squeezed(text: str) -> str:
    """Without the white space, which a cut between two messages takes away."""
    return "".join(text.split())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a session, as people see it.

    Attributes:
        replies: how many whole answers stand.
        lost: messages without one.
        doubled: messages with more than one.
        disordered: a message that is answered behind a newer one, and that newer one.
        wrong: texts that are no answer, and answers that are not what was to be said, or not what was asked there.
        unfinished: how many of the bot's messages are not as they are to stay.
    """

    replies: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    disordered: tuple[tuple[str, str], ...]
    wrong: tuple[str, ...]
    unfinished: int = 0


def judge(said: Sequence[str], shown: str, unfinished: int = 0) -> Verdict:
    """Look at all that the bot shows in a session, one message after the other.

    Args:
        said: the messages to it, by their names, in order.
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
    """Whether the older of two messages was heard after the turn of the newer one began.

    Args:
        heard_at: when the platform knows a message to be heard.
        begun_at: when the turn of a message began.
    """
    older, newer = pair
    return heard_at.get(older, 0.0) > begun_at.get(newer, inf)


def _number(id_: str) -> int:
    return int(id_.partition("-")[2])


def begun(shown: str) -> set[str]:
    """The messages whose answer has begun."""
    return {id_ for found in _BEGINNING.finditer(squeezed(shown)) for id_ in found[1].split(",")}


def answered(shown: str) -> set[str]:
    """The messages that have a whole answer."""
    return {id_ for found in _REPLY.finditer(squeezed(shown)) for id_ in found[1].split(",")}
