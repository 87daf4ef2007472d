"""Interfaces of contenders: bots that answer questions in a sandbox."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.replies.load import Load, Speech
from benchmarks.replies.platforms import MeasuredQuestion


class RunningContender(ABC):
    """Contender that is connected to a sandbox."""

    @abstractmethod
    async def answer(self, question: MeasuredQuestion, speech: Speech) -> None:
        """Answer with the model's speech; return when the reply is complete."""


class ReplyWriter(Protocol):
    """Reply that grows with the model's text."""

    def feed(self, delta: str) -> None:
        """Add text of the model."""
        ...

    async def close(self, text: str) -> None:
        """End the reply with its complete text; return when the platform shows it, or the writer gave up."""
        ...


class StreamingContender(RunningContender):
    """Running contender with a `ReplyWriter` for each reply."""

    @abstractmethod
    def open_reply(self, question: MeasuredQuestion) -> AbstractAsyncContextManager[ReplyWriter]:
        """Return a context that begins a reply to the question, and yields its writer."""

    async def answer(self, question: MeasuredQuestion, speech: Speech) -> None:
        async with self.open_reply(question) as writer:
            speech.subscribe(writer.feed)
            await speech.ended.wait()
            await writer.close(speech.text)


@dataclass(frozen=True, slots=True)
class ReplyContender:
    """Bot, or a copy of its policy, on one platform.

    Attributes:
        platform: "slack" or "discord".
        start: connects it to a sandbox of the platform for the time of the context.
        is_measurable: returns whether it can run under a load.
    """

    name: str
    platform: str
    start: Callable[[Any], AbstractAsyncContextManager[RunningContender]]
    is_measurable: Callable[[Load], bool] = lambda load: True
