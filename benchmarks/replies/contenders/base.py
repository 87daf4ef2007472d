"""Interfaces of the contenders: bots that answer a load's prompts in a simulator."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.replies.load import Load, TokenStream
from benchmarks.replies.platforms import MeasuredPrompt


class RunningContender(ABC):
    """Bot that is connected to a simulator and answers prompts."""

    @abstractmethod
    async def answer(self, prompt: MeasuredPrompt, stream: TokenStream) -> None:
        """Reply with the words that the model streams in `stream`.

        Returns when the reply has ended, complete or not. It may raise the error of a failed call.
        """


class ReplyWriter(Protocol):
    """Writer of one reply of a `StreamingContender`; it receives the streamed text."""

    def feed(self, delta: str) -> None:
        """Append streamed text of the model; the writer decides when to post it."""
        ...

    async def close(self, text: str) -> None:
        """End the reply with its complete text.

        Returns when the platform shows `text`, or when the writer has given up. A copied policy may raise the platform
        client's error instead.
        """
        ...


class StreamingContender(RunningContender):
    """Running contender that receives the stream word by word.

    For each prompt it opens a `ReplyWriter`, feeds it each word, and closes it with the complete text.
    """

    @abstractmethod
    def open_reply(self, prompt: MeasuredPrompt) -> AbstractAsyncContextManager[ReplyWriter]:
        """Return a context manager that begins a reply and yields its writer."""

    async def answer(self, prompt: MeasuredPrompt, stream: TokenStream) -> None:
        async with self.open_reply(prompt) as writer:
            stream.subscribe(writer.feed)
            await stream.ended.wait()
            await writer.close(stream.text)


@dataclass(frozen=True, slots=True)
class ReplyContender:
    """Measured bot, or a copy of its streaming policy, on one platform.

    Attributes:
        platform: "slack" or "discord".
        start: returns a context manager that connects the bot to a simulator of the platform.
        is_measurable: returns whether the bot can run under a load.
    """

    name: str
    platform: str
    start: Callable[[Any], AbstractAsyncContextManager[RunningContender]]
    is_measurable: Callable[[Load], bool] = lambda load: True
