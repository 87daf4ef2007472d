"""What the model reads of a turn: what was said to the bot, and what was said around it.

The words of people whom the turn does not answer stand in a frame that nothing in them can end or imitate; names are
cleared of all that could pass for the beginning of a line.
"""

import asyncio
import logging
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from channels.base import Channel, ContextKind, ContextMessage, MessageText, SurroundingMessages
from channels.rate_limits.caller import deadline
from channels.settings import CONTEXT_MAX_TOKENS
from core.agents.run_record import Others
from core.concurrency.retry import retried
from core.conversations.history_state import get_history_state
from core.inbox_message import INVISIBLE, InboxMessage, storable_text
from core.secret_redaction import traced
from core.sessions.prompt_text import (
    LINE_PREFIX,
    QUOTE_CLOSE,
    QUOTE_OPEN,
    AttributedPrompt,
    attribute_text,
    build_quote,
    escape_brackets,
    quote_message,
)
from core.store.database import Database
from core.turns.turn import Turn

log = logging.getLogger(__name__)

#: Seconds that an answer waits for them.
PATIENCE = 4.0

_TITLES: Mapping[ContextKind, str] = {
    "before": "What others said here before",
    "quoted": "What the next message replies to",
    "forwarded": "What the next message passes on",
    "about": "What the next message is about",
}
_CUT = f"{QUOTE_OPEN}the rest is left out{QUOTE_CLOSE}"

#: Characters of a name.
_NAME = 80

#: Letters and digits that look like Latin ones, and these. Source: unicode.org/Public/security/latest/confusables.txt.
_CONFUSABLES = str.maketrans(
    "АВЕЅІЈКМНОРСТУХԌԚԜаеіјкорсухѕһԁԛԝӏӀΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυɑɡıIi1|0",  # noqa: RUF001
    "ABESlJKMHOPCTYXGQWaeljkopcyxshdqwllABEZHlKMNOPTYXalkvopuaglllllo",
)

#: What tells in `InboxMessage.brings` that a message is a question about another one, which it has in words.
ABOUT = "about"

Count = Callable[[str], Awaitable[int]]


class Context:
    """Puts together what the model reads of a turn.

    Args:
        count: tells how many tokens a text is.
        most: how many tokens of other people's words one turn may have; 0 for none.
        patience: how many seconds it waits for them.
    """

    def __init__(
        self, database: Database, count: Count, *, most: int = CONTEXT_MAX_TOKENS, patience: float = PATIENCE
    ) -> None:
        self._database = database
        self._count = count
        self._most = most
        self._patience = patience

    async def joined(
        self, turn: Turn, channel: Channel, heard: Sequence[MessageText]
    ) -> tuple[AttributedPrompt, Others]:
        """What was said to the bot, each message behind what was said around it, and how much of that it is. Where
        several speak, it is told who does.

        Raises:
            StoreError: it cannot be read what the history holds.
        """
        around = await self._around(turn, channel, is_alone=all(message.is_one_to_one for message in heard))
        about = [one for message in turn.messages for one in _asked_about(message)]
        known = {(one.author, one.sent_at) for one in about}
        told = [*about, *(one for one in around.messages if (one.author, one.sent_at) not in known)]
        authors = [message.author for message in turn.messages]
        speakers = dict(zip(authors, (message.speaker for message in heard), strict=True))
        names = labels({one.author: one.name for one in told} | dict(around.names) | speakers)
        frames, others = await framed(turn.messages, told, names, count=self._count, most=self._most)
        parts = list[tuple[str, str]]()
        for message, said in zip(turn.messages, heard, strict=True):
            own = escape_brackets(said.text)
            parts += [("", around_it) for around_it in frames[message.event_key]]
            parts.append((message.author, own if said.is_one_to_one else attribute_text(names[message.author], own)))
        heard_of = {one.author for one in told} | set(authors)
        people = {id_: name for id_, name in names.items() if id_ in heard_of}
        return AttributedPrompt(tuple((who, words) for who, words in parts if words), people), others

    async def _around(self, turn: Turn, channel: Channel, *, is_alone: bool) -> SurroundingMessages:
        """Looked up once: what a run has stored of it, it goes on with."""
        behind = None
        if not self._most:
            return SurroundingMessages()
        if not is_alone or turn.is_resumed or turn.kind != "message":
            behind = await retried(lambda: get_history_state(self._database, turn), what=f"turn {turn.id}")
            if behind is None:
                return SurroundingMessages()
        try:
            async with asyncio.timeout(self._patience):
                with deadline(self._patience):
                    return await channel.fetch_context(turn.messages, None if is_alone else behind)
        except Exception as error:  # whatever the platform says, the answer goes on
            log.warning("turn %s: what was said around it is not known: %s", turn.id, traced(error))
            return SurroundingMessages()


def about(author: str, name: str, text: str, at: float) -> dict[str, Any]:
    """What a question about a message brings: see `InboxMessage.brings` and `Said`."""
    return {ABOUT: {"author": author, "name": name, "text": storable_text(text), "sent_at": at}}


def _asked_about(message: InboxMessage) -> Iterator[ContextMessage]:
    for part in message.brings:
        if ABOUT in part:
            yield ContextMessage(**part[ABOUT], kind="about", event_key=message.event_key)


def labels(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of people by their ids; a name that looks like another one is followed by its id."""
    shown = {id_: _name(name) or _name(id_) for id_, name in names.items()}
    looks = [_look(name) for name in shown.values()]
    ids = [f"({_look(id_)})" for id_ in names]

    def is_mistakable(name: str) -> bool:
        return looks.count(_look(name)) > 1 or any(id_ in _look(name) for id_ in ids)

    return {id_: f"{name} ({id_})" if is_mistakable(name) else name for id_, name in shown.items()}


def _name(name: str) -> str:
    """Return a name on one line, without invisible characters and colons."""
    seen = INVISIBLE.sub(" ", escape_brackets(storable_text(name)).replace(":", " "))
    return " ".join(seen[:_NAME].split())


def _look(name: str) -> str:
    """Return the same text for names that look alike."""
    return "".join(unicodedata.normalize("NFKC", name).translate(_CONFUSABLES).casefold().split())


@dataclass(frozen=True, slots=True)
class _Shown:
    """A message as it stands in a frame."""

    said: ContextMessage
    lines: str


async def framed(
    messages: Sequence[InboxMessage],
    said: Sequence[ContextMessage],
    names: Mapping[str, str],
    *,
    count: Count,
    most: int,
) -> tuple[dict[str, list[str]], Others]:
    """The frames before each of the messages, by their event keys: what they are questions about, and with no more
    than so many tokens of all else first what they quote or pass on, then what their thread is about, then the newest.
    And how much of it all that is.

    Args:
        names: what people go by, by their ids.
    """
    last = messages[-1].sent_at
    told = [one for one in said if _words(one) and (one.event_key or one.sent_at <= last)]
    given = [one for one in told if one.kind == "about"]
    apart = [one for one in told if (one.event_key or one.is_thread_start) and one not in given]
    talk = [one for one in told if not (one.event_key or one.is_thread_start)]
    shown, left = [_Shown(one, _lines(one, names)) for one in given], most
    for one in apart:
        told_of, cost = await _within(_lines(one, names), left // 2, count)
        shown += [_Shown(one, told_of)] if told_of else []
        left -= cost
    kept = list[_Shown]()
    for one in reversed(talk):
        told_of = _lines(one, names)
        cost = await count(told_of)
        if cost > left and not kept:
            told_of, cost = await _within(told_of, left, count)
        if cost > left or not told_of:
            break
        kept.append(_Shown(one, told_of))
        left -= cost
    others = Others(len(shown) + len(kept), most - left, len(told) - len(shown) - len(kept))
    missing = len(talk) - len(kept)
    if missing and kept:
        note = f"{QUOTE_OPEN}{missing} older messages are left out{QUOTE_CLOSE}"
        kept[-1] = replace(kept[-1], lines=f"{note}\n{kept[-1].lines}")
    shown += reversed(kept)
    return {message.event_key: frames for message, frames in _placed(messages, shown)}, others


def _placed(messages: Sequence[InboxMessage], shown: Sequence[_Shown]) -> Iterator[tuple[InboxMessage, list[str]]]:
    begin = float("-inf")
    for message in messages:
        end = message.sent_at if message is not messages[-1] else float("inf")
        before = [one for one in shown if not one.said.event_key and begin <= one.said.sent_at < end]
        own = [one for one in shown if one.said.event_key == message.event_key]
        groups: Mapping[ContextKind, list[_Shown]] = {
            "before": before,
            "quoted": [one for one in own if one.said.kind == "quoted"],
            "forwarded": [one for one in own if one.said.kind == "forwarded"],
            "about": [one for one in own if one.said.kind == "about"],
        }
        yield (
            message,
            [build_quote(_TITLES[kind], (one.lines for one in group)) for kind, group in groups.items() if group],
        )
        begin = end


def _words(said: ContextMessage) -> str:
    return escape_brackets(storable_text(said.text)).strip()


def _lines(said: ContextMessage, names: Mapping[str, str]) -> str:
    """A message as its lines in a frame."""
    return quote_message(names[said.author], _words(said))


async def _within(told_of: str, most: int, count: Count) -> tuple[str, int]:
    """As much of the lines from their start as is no more than so many tokens, and how many it is."""
    cost, text = await count(told_of), told_of
    while cost > most:
        text = text[: min(len(text) * most // cost, len(text) - 1)]
        if len(text) < len(LINE_PREFIX) + 2 * _NAME:  # hardly more than who said it
            return "", 0
        cost = await count(text)
    if text == told_of:
        return told_of, cost
    return f"{text.rstrip()} {_CUT}", cost
