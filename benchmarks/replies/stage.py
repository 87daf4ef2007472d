"""Where the replies are shown: a sandbox with channels in it, a real client beside it, and what people see."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from benchmarks.replies.load import Load
from sandbox.discord import DiscordSandbox
from sandbox.slack import SlackSandbox

#: Seconds that a call takes to the platform, and its answer back.
ONE_WAY = 0.05


@dataclass(frozen=True, slots=True)
class Question:
    """A message that is to be answered.

    Attributes:
        channel: which of the load's channels it stands in.
        place: that channel's id.
        message: its own id: `ts`, or a snowflake.
    """

    number: int
    channel: int
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Version:
    """A text that a message of the bot's had since `at` (monotonic seconds); none since it was deleted.

    Attributes:
        order: of the messages, as they were posted.
        answers: the ids of what it may be an answer to: its thread, or the message that it replies to.
    """

    at: float
    message: str
    order: int
    text: str | None
    answers: str | None = None


class Stage(ABC):
    """One sandbox for one cell of the bench."""

    name: str

    def __init__(self, load: Load) -> None:
        self.load = load
        self.speed = load.speed
        self._stack = AsyncExitStack()

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @abstractmethod
    async def ask(self, number: int) -> Question:
        """Let a person ask the question of that number, with a mention of the bot."""

    @abstractmethod
    def calls(self) -> Sequence[tuple[str, float, bool]]:
        """The name, the (monotonic) time and whether it was refused by a limit, of each call."""

    @abstractmethod
    def versions(self) -> Sequence[Version]:
        """All that was seen of the bot's messages, in the order in which it was."""


class SlackStage(Stage):
    name = "slack"

    async def __aenter__(self) -> Self:
        self.sandbox = SlackSandbox(speed=self.speed)
        await self._stack.enter_async_context(self.sandbox)
        self.sandbox.faults.slow(ONE_WAY / self.speed)
        self.places = [self.sandbox.add_channel(f"channel-{number}") for number in range(self.load.channels)]
        return self

    async def ask(self, number: int) -> Question:
        channel = self.load.channel(number)
        text = f"<@{self.sandbox.bot_user_id}> question {number}"
        message = await self.sandbox.say("ada", self.places[channel], text)
        return Question(number, channel, self.places[channel].id, message.ts)

    def calls(self) -> Sequence[tuple[str, float, bool]]:
        return [(call.method, call.at, call.rate_limited) for call in self.sandbox.calls]

    def versions(self) -> Sequence[Version]:
        deleted = {
            str(call.arguments["ts"]): call.at + ONE_WAY / self.speed
            for call in self.sandbox.calls
            if call.method == "chat.delete" and call.error is None
        }
        found = []
        for place in self.places:
            own = [m for m in self.sandbox.messages(place, deleted=True) if m.user == self.sandbox.bot_user_id]
            for order, message in enumerate(own):
                for version in message.versions:
                    found.append(Version(version.at, message.ts, order, version.text, message.thread_ts))
                if message.deleted:
                    found.append(Version(deleted[message.ts], message.ts, order, None, message.thread_ts))
        return sorted(found, key=lambda version: version.at)


class DiscordStage(Stage):
    name = "discord"

    async def __aenter__(self) -> Self:
        self.sandbox = DiscordSandbox(speed=self.speed)
        await self._stack.enter_async_context(self.sandbox)
        self.sandbox.faults.slow(ONE_WAY / self.speed)
        self.places = [self.sandbox.add_channel(f"channel-{number}") for number in range(self.load.channels)]
        return self

    async def ask(self, number: int) -> Question:
        channel = self.load.channel(number)
        text = f"<@{self.sandbox.bot_id}> question {number}"
        message = await self.sandbox.say("ada", self.places[channel], text)
        return Question(number, channel, self.places[channel].id, message.id)

    def calls(self) -> Sequence[tuple[str, float, bool]]:
        return [(call.route, call.at, call.rate_limited) for call in self.sandbox.calls]

    def versions(self) -> Sequence[Version]:
        deleted = {
            call.path.rpartition("/")[2]: call.at + ONE_WAY / self.speed
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
