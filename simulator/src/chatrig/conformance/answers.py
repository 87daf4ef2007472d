"""Scripted model of the cases: it answers a question with the numbered words of the question's key."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Self

from chatrig.models import ReceivedRequest, Say, ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI, ScriptedResponse

_QUESTION = re.compile(r"\bQuestion (c\d\d[a-z]?)\b")
#: Answer to a request without a question, such as one for the title of a conversation.
_OTHER_ANSWER = "Noted."


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a question, and what the model does before and while it gives it.

    Attributes:
        pieces: the greatest number of deltas of a streamed answer.
        pace: seconds between two deltas.
        first: responses to the first requests about the question, before the answer.
    """

    text: str
    words: int
    pieces: int = 8
    pace: float = 0.1
    first: Sequence[ScriptedResponse] = ()

    @property
    def response(self) -> ScriptedResponse:
        return Say(self.text, pieces=self.pieces, pace=self.pace)


@dataclass(slots=True)
class ScriptedAnswers:
    """Model servers of all vendors with one script, as an async context manager.

    Attributes:
        requested: the event of each key that is set by the first request about it.
        env: variables of a bot: the servers' addresses and keys.
    """

    requested: dict[str, asyncio.Event] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _responses: dict[str, Iterator[ScriptedResponse]] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def add(self, key: str, answer: Answer) -> None:
        self._answers[key] = answer
        self._responses[key] = iter(answer.first)
        self.requested[key] = asyncio.Event()

    async def __aenter__(self) -> Self:
        for server in (ScriptedOpenAI, ScriptedAnthropic, ScriptedGemini):
            running = await self._stack.enter_async_context(server(self._respond))
            self.env |= running.env
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _respond(self, request: ReceivedRequest) -> ScriptedResponse:
        keys = [key for key in dict.fromkeys(_QUESTION.findall(request.text)) if key in self._answers]
        for key in keys:
            self.requested[key].set()
        if not keys:
            return _OTHER_ANSWER
        if len(keys) > 1:
            return "\n\n".join(self._answers[key].text for key in keys)
        return next(self._responses[keys[0]], self._answers[keys[0]].response)


def number_words(key: str, words: int) -> str:
    return " ".join(f"{key}w{number}" for number in range(words))


def create_document(key: str) -> Answer:
    """Return an answer of about 15,000 characters: paragraphs, a table and a block of code."""
    numbers = count()

    def take(words: int) -> list[str]:
        return [f"{key}w{next(numbers)}" for _ in range(words)]

    def write_paragraphs(paragraphs: int) -> list[str]:
        return [" ".join(take(60)) for _ in range(paragraphs)]

    parts = write_paragraphs(10)
    rows = [f"| {' | '.join(take(3))} |" for _ in range(15)]
    parts.append("\n".join(["| A | B | C |", "| --- | --- | --- |", *rows]))
    parts += write_paragraphs(4)
    parts.append("\n".join(["```", *(" ".join(take(6)) for _ in range(40)), "```"]))
    parts += write_paragraphs(11)
    return Answer("\n\n".join(parts), next(numbers), pieces=60, pace=0.05)
