"""Who is measured: something that answers questions on a stage."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.replies.load import Load, Speech
from benchmarks.replies.platforms import Question


class Answering(ABC):
    """A contender at work."""

    @abstractmethod
    async def answer(self, question: Question, speech: Speech) -> None:
        """Answer with what the model says; returns when no more comes of it."""


class Writer(Protocol):
    """One reply that is being written."""

    def feed(self, delta: str) -> None:
        """The model has said more."""
        ...

    async def close(self, text: str) -> None:
        """The model has said all of it; returns when it stands, or is given up."""
        ...


class Writing(Answering):
    """Answers by a `Writer` for each reply."""

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
    """One that answers on one platform.

    Attributes:
        on: gets it ready on a stage of that platform.
        fits: whether it can be measured under a load.
    """

    name: str
    platform: str
    on: Callable[[Any], AbstractAsyncContextManager[Answering]]
    fits: Callable[[Load], bool] = lambda load: True
