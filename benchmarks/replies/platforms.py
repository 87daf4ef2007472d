"""Stages: sandboxes with channels, and the visible versions of messages.

A stage runs in a thread of its own, so that the event loop's figures are the contender's alone.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from benchmarks.replies.load import Load
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackSandbox

T = TypeVar("T")

#: Network delay of a call to the platform, and of its answer, in seconds.
ONE_WAY = 0.05


@dataclass(frozen=True, slots=True)
class Question:
    """Message to answer.

    Attributes:
        channel: the number of the channel in the load.
        place: the id of the channel.
        message: the id of the message: `ts`, or a snowflake.
    """

    number: int
    channel: int
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Version:
    """Text of a bot's message since `at` (monotonic seconds); None after its deletion.

    Attributes:
        order: the number of the message in the order of posting.
        answers: the ids of its thread and of the message that it replies to.
    """

    at: float
    message: str
    order: int
    text: str | None
    answers: str | None = None


class Stage(ABC):
    """Sandbox of one cell."""

    name: str

    def __init__(self, load: Load) -> None:
        self.load = load
        self.speed = load.speed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox")

    async def __aenter__(self) -> Self:
        self._thread.start()
        await self.do(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the sandbox's thread."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    async def ask(self, number: int) -> Question:
        """Post the question of this number with a mention of the bot."""

    @abstractmethod
    def calls(self) -> Sequence[tuple[str, float, bool]]:
        """Return the name, the monotonic time and the rate-limited flag of each call."""

    @abstractmethod
    def versions(self) -> Sequence[Version]:
        """Return all versions of the bot's messages in order of time."""


class SlackStage(Stage):
    name = "slack"

    async def _open(self) -> None:
        self.sandbox = SlackSandbox(speed=self.speed)
        await self.sandbox.__aenter__()
        self.sandbox.faults.set_latency(ONE_WAY / self.speed)
        self.places = [self.sandbox.add_channel(f"channel-{number}") for number in range(self.load.channels)]

    async def _close(self) -> None:
        await self.sandbox.__aexit__(None, None, None)

    async def ask(self, number: int) -> Question:
        channel = self.load.channel(number)
        text = f"<@{self.sandbox.bot_user_id}> question {number}"
        message = await self.do(self.sandbox.post_message("ada", self.places[channel], text))
        return Question(number, channel, self.places[channel].id, message.ts)

    def calls(self) -> Sequence[tuple[str, float, bool]]:
        return [(call.method, call.received_at, call.rate_limited) for call in self.sandbox.calls]

    def versions(self) -> Sequence[Version]:
        deleted = {
            str(call.arguments["ts"]): call.received_at + ONE_WAY / self.speed
            for call in self.sandbox.calls
            if call.method == "chat.delete" and call.error is None
        }
        found = []
        for place in self.places:
            own = [m for m in self.sandbox.messages(place, deleted=True) if m.user == self.sandbox.bot_user_id]
            for order, message in enumerate(own):
                for version in message.versions:
                    found.append(Version(version.shown_at, message.ts, order, version.text, message.thread_ts))
                if message.deleted:
                    found.append(Version(deleted[message.ts], message.ts, order, None, message.thread_ts))
        return sorted(found, key=lambda version: version.at)


class DiscordStage(Stage):
    name = "discord"

    async def _open(self) -> None:
        self.sandbox = DiscordSandbox(speed=self.speed)
        await self.sandbox.__aenter__()
        self.sandbox.faults.set_latency(ONE_WAY / self.speed)
        self.places = [self.sandbox.add_channel(f"channel-{number}") for number in range(self.load.channels)]

    async def _close(self) -> None:
        await self.sandbox.__aexit__(None, None, None)

    async def ask(self, number: int) -> Question:
        channel = self.load.channel(number)
        text = f"<@{self.sandbox.bot_id}> question {number}"
        message = await self.do(self.sandbox.post_message("ada", self.places[channel], text))
        return Question(number, channel, self.places[channel].id, message.id)

    def calls(self) -> Sequence[tuple[str, float, bool]]:
        return [(call.route, call.received_at, call.rate_limited) for call in self.sandbox.calls]

    def versions(self) -> Sequence[Version]:
        deleted = {
            call.path.rpartition("/")[2]: call.received_at + ONE_WAY / self.speed
            for call in self.sandbox.calls
            if call.route.startswith("DELETE /channels/{channel}/messages/{message}") and call.status == 204
        }
        found = []
        for place in self.places:
            own = [m for m in self.sandbox.messages(place, deleted=True) if m.author.id == self.sandbox.bot_id]
            for order, message in enumerate(own):
                answers = message.reply_to.id if message.reply_to else None
                for version in message.versions:
                    found.append(Version(version.at, message.id, order, version.text, answers))
                if message.deleted:
                    found.append(Version(deleted[message.id], message.id, order, None, answers))
        return sorted(found, key=lambda version: version.at)


STAGES: dict[str, type[Stage]] = {stage.name: stage for stage in (SlackStage, DiscordStage)}
