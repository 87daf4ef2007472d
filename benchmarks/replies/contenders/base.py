"""Interfaces of contenders: bots that answer questions on a stage."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.replies.load import Load, Speech
from benchmarks.replies.platforms import Question


class Answering(ABC):
    """Running contender."""

    @abstractmethod
    async def answer(self, question: Question, speech: Speech) -> None:
        """Answer with the model's speech; return when the reply is complete."""


class Writer(Protocol):
    """Growing reply."""

    def feed(self, delta: str) -> None:
        """Add text of the model."""
        ...

    async def close(self, text: str) -> None:
        """End the reply; return when it is complete or given up."""
        ...


class Writing(Answering):
    """Running contender with a `Writer` per reply."""

    @abstractmethod
    def write(self, question: Question) -> AbstractAsyncContextManager[Writer]:
        """Begin a reply."""

    async def answer(self, question: Question, speech: Speech) -> None:
        async with self.write(question) as writer:
            speech.listen(writer.feed)
            await speech.ended.wait()
            await writer.close(speech.text)


@dataclass(frozen=True, slots=True)
class Contender:
    """Contender on one platform.

    Attributes:
        on: starts it on a stage of the platform.
        fits: returns whether it can be measured under a load.
    """

    name: str
    platform: str
    on: Callable[[Any], AbstractAsyncContextManager[Answering]]
    fits: Callable[[Load], bool] = lambda load: True
