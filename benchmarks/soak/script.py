"""Messages of a soak test, the model's answers, and verdicts on the visible texts.

Each message is named by its session and number: `s3-14`. An answer lists the names of all its messages and ends with a
mark. So the visible texts alone reveal lost, doubled and cut answers.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from chatrig.models import ReceivedRequest, Say, ScriptedResponse
from core.sessions.prompt_text import QUOTE_CLOSE, QUOTE_OPEN

#: Quoted context around a prompt, whose names do not count.
_CONTEXT = re.compile(rf"{QUOTE_OPEN}.*?{QUOTE_OPEN}End of the quote{QUOTE_CLOSE}", re.DOTALL)

_NAME = re.compile(r"s\d+-\d+")
_BEGINNING = re.compile(rf"«({_NAME.pattern}(?:,{_NAME.pattern})*)»")
_REPLY = re.compile(rf"«({_NAME.pattern}(?:,{_NAME.pattern})*)»(.*?)«end»")

#: Mean number of answers for each one that needs several chunks, and the latter's length in words.
ANSWERS_PER_LONG_ONE, LONG_ANSWER_WORDS = 25, 700

#: Number of deltas of an answer, and the seconds between them.
DELTAS, DELTA_INTERVAL_SECONDS = 6, 0.05


def get_answer_text(names: Sequence[str]) -> str:
    """Return the model's answer to the messages with these names.

    It has the names (`«s3-14,s3-15»`), 3 or more words, and `«end»`. The names are the seed of the words, so each call
    returns the same text.
    """
    rng = random.Random(",".join(names))
    count = LONG_ANSWER_WORDS if rng.randrange(ANSWERS_PER_LONG_ONE) == 0 else rng.randint(3, 60)
    words = (f"w{rng.randrange(1000)}" + ("\n\n" if rng.random() < 0.02 else " ") for _ in range(count))
    return f"«{','.join(names)}» {''.join(words)}«end»"


@dataclass
class CheckingModel:
    """Scripted model that answers each request, and checks the request's history.

    Attributes:
        faults: descriptions of wrong histories.
        orders: the message names of each history that has an older message after a newer one.
    """

    faults: list[str] = field(default_factory=list)
    orders: list[list[str]] = field(default_factory=list)

    def __call__(self, request: ReceivedRequest) -> ScriptedResponse:
        self.check_history(request)
        return self.build_answer(find_names(request.text), DELTAS, DELTA_INTERVAL_SECONDS)

    def check_history(self, request: ReceivedRequest) -> None:
        """Check a model request's history, and append its faults.

        An invalid history adds the text of `find_history_fault` to `faults`. A history with an older message after a
        newer one adds its message names to `orders`.
        """
        messages = list_texts(request.messages)
        if wrong := find_history_fault(messages):
            self.faults.append(wrong)
        order = [name for role, text in messages if role == "user" for name in find_names(text)]
        if find_out_of_order(order):
            self.orders.append(order)

    def build_answer(self, names: Sequence[str], deltas: int, interval_seconds: float) -> Say:
        """Return the answer to the messages with these names, as deltas.

        Args:
            deltas: the number of deltas.
            interval_seconds: seconds between two deltas.
        """
        return Say(get_answer_text(names), pieces=deltas, pace=interval_seconds)


def list_texts(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the (role, text) pairs of a history without tool calls and tool results.

    A tool call is an `assistant` message before a `tool` message.
    """
    following = [role for role, _ in messages[1:]] + [""]
    calls = [role == "assistant" and after == "tool" for (role, _), after in zip(messages, following, strict=True)]
    return [message for message, is_call in zip(messages, calls, strict=True) if not is_call and message[0] != "tool"]


def find_names(text: str) -> list[str]:
    """Return the message names (`s3-14`) in a text, in order, with repetitions.

    Names in quoted context messages do not count.
    """
    return _NAME.findall(_CONTEXT.sub("", text))


def find_history_fault(messages: Sequence[tuple[str, str]]) -> str:
    """Return the fault of a model request's history as text; "" if it is valid.

    A valid history alternates prompts and answers, and ends with a prompt. Each answer is the
    `get_answer_text` of the names in its prompt. A name occurs only once; the order of the names is free. A first
    message of only quotes, such as a summary, is skipped. A history of only that message, such as the request for a
    summary, is valid.

    Args:
        messages: (role, text) pairs without tool calls.
    """
    if messages and not _CONTEXT.sub("", messages[0][1]).strip():
        messages = messages[1:]
        if not messages:
            return ""
    if [role for role, _ in messages] != ["user", "assistant"] * (len(messages) // 2) + ["user"]:
        return f"roles: {[role for role, _ in messages]}"
    prompts = [find_names(text) for role, text in messages if role == "user"]
    answers = [text for role, text in messages if role == "assistant"]
    for names, text in zip(prompts, answers, strict=False):
        if text != get_answer_text(names):
            return f"{names} was answered with {text[:80]!r}"
    all_names = [name for names in prompts for name in names]
    return "" if len(all_names) == len(set(all_names)) else f"more than once: {all_names}"


def find_out_of_order(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return each pair (older, newer) of message names in which the newer comes first.

    Args:
        names: names of one session's messages; the newer one has the higher number after the hyphen.
    """
    return tuple(
        (older, newer) for i, older in enumerate(names) for newer in names[:i] if _number(newer) > _number(older)
    )


def strip_whitespace(text: str) -> str:
    """Return a text without any white space.

    Texts are compared without it, since a split into chunks removes some.
    """
    return "".join(text.split())


@dataclass(frozen=True, slots=True)
class SessionVerdict:
    """Faults of a session that a user can see. Messages are named like `s3-14`.

    Attributes:
        replies: the number of complete answers.
        lost: messages without a complete answer.
        doubled: messages with several answers.
        out_of_order: each pair (older, newer) of messages of which the newer was answered first.
        wrong: texts that are no answer, wrong answers, and answers of other sessions.
        unfinished: the number of the bot's unfinished messages (see `SoakBotMessage.is_finished`).
    """

    replies: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    out_of_order: tuple[tuple[str, str], ...]
    wrong: tuple[str, ...]
    unfinished: int = 0


def judge(sent: Sequence[str], visible_text: str, unfinished: int = 0) -> SessionVerdict:
    """Return the verdict on the bot's visible text in a session.

    Args:
        sent: the names of the user's messages to the bot, in order.
        visible_text: the texts of the bot's messages, joined in order.
        unfinished: see `SessionVerdict`.
    """
    text = strip_whitespace(visible_text)
    replies = [(found[0], found[1].split(",")) for found in _REPLY.finditer(text)]
    answered = [name for _, names in replies for name in names]
    wrong = [
        reply for reply, names in replies if reply != strip_whitespace(get_answer_text(names)) or set(names) - set(sent)
    ]
    if other_text := _REPLY.sub("", text):
        wrong.append(other_text)
    return SessionVerdict(
        len(replies),
        tuple(name for name in sent if name not in answered),
        tuple(sorted({name for name in answered if answered.count(name) > 1})),
        find_out_of_order(answered),
        tuple(wrong),
        unfinished,
    )


def is_late(pair: tuple[str, str], receipt_times: Mapping[str, float], turn_starts: Mapping[str, float]) -> bool:
    """Return whether a message was received after the turn of a newer one began.

    It is False if one of the two times is missing.

    Args:
        pair: the names of the messages, the older one first.
        receipt_times: the time at which the bot received each message (monotonic seconds).
        turn_starts: the start of each message's turn (monotonic seconds).
    """
    older, newer = pair
    return receipt_times.get(older, 0.0) > turn_starts.get(newer, inf)


def _number(name: str) -> int:
    return int(name.partition("-")[2])


def find_started(visible_text: str) -> set[str]:
    """Return the names of the messages whose answers begin in a bot's visible text."""
    return {name for found in _BEGINNING.finditer(strip_whitespace(visible_text)) for name in found[1].split(",")}


def find_answered(visible_text: str) -> set[str]:
    """Return the names of the messages with a complete answer in a bot's visible text.

    A complete answer begins with the names and ends with `«end»` (see `get_answer_text`); its words are not checked.
    """
    return {name for found in _REPLY.finditer(strip_whitespace(visible_text)) for name in found[1].split(",")}
