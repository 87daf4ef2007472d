"""Simulators in which contenders answer, with all versions of the bot's messages.

A simulator runs in a thread of its own, so that the event loop's figures are the contender's alone.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from benchmarks.replies.load import Load
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator

T = TypeVar("T")

#: Network delay of a call to the platform, and of its answer, in seconds.
NETWORK_DELAY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class MeasuredPrompt:
    """Prompt of the load: a user's message that mentions the bot.

    Attributes:
        number: the number of the reply in the load.
        channel: the number of the channel in the load.
        place: the platform's id of the channel.
        message: the platform's id of the message: `ts`, or a snowflake.
    """

    number: int
    channel: int
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Version:
    """Text that one of the bot's messages shows from a time on.

    Attributes:
        at: the time from which users see it (monotonic seconds).
        message: the id of the message.
        order: the number of the message in its channel, in the order of posting.
        text: None after the message's deletion.
        reply_to: Slack: the `thread_ts`; Discord: the id of the message that it replies to.
    """

    at: float
    message: str
    order: int
    text: str | None
    reply_to: str | None = None


class CellPlatform(ABC):
    """Simulator of one measurement: Slack or Discord.

    It has the channels of the load, and its event loop runs in a Python thread of its own. The async context
    manager starts and stops both.
    """

    name: str

    def __init__(self, load: Load) -> None:
        self.load = load
        self.speed = load.speed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="simulator")

    async def __aenter__(self) -> Self:
        self._thread.start()
        await self.run(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the simulator's event loop, and return its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    async def post_prompt(self, number: int) -> MeasuredPrompt:
        """Post the prompt with this number, which mentions the bot, and return it."""

    @abstractmethod
    def list_calls(self) -> Sequence[tuple[str, float, bool]]:
        """Return (name, time, is_limited) for each API call of the bot, oldest first.

        Name is Slack's method (`chat.update`) or Discord's route (`PATCH /channels/...`). Time is the call's arrival
        (monotonic seconds). `is_limited` is True if the call was rate limited.
        """

    @abstractmethod
    def list_versions(self) -> Sequence[Version]:
        """Return all versions of the bot's messages, with their times, oldest first."""


class SlackCellPlatform(CellPlatform):
    """Local Slack of one measurement; each prompt begins a thread."""

    name = "slack"

    async def _open(self) -> None:
        self.simulator = SlackSimulator(speed=self.speed)
        await self.simulator.__aenter__()
        self.simulator.faults.set_latency(NETWORK_DELAY_SECONDS / self.speed)
        self.channels = [self.simulator.add_channel(f"channel-{number}") for number in range(self.load.channels)]

    async def _close(self) -> None:
        await self.simulator.__aexit__(None, None, None)

    async def post_prompt(self, number: int) -> MeasuredPrompt:
        channel = self.load.channel(number)
        text = f"<@{self.simulator.bot_user_id}> prompt {number}"
        message = await self.run(self.simulator.post_message("ada", self.channels[channel], text))
        return MeasuredPrompt(number, channel, self.channels[channel].id, message.ts)

    def list_calls(self) -> Sequence[tuple[str, float, bool]]:
        return [(call.method, call.received_at, call.rate_limited) for call in self.simulator.calls]

    def list_versions(self) -> Sequence[Version]:
        deleted = {
            str(call.arguments["ts"]): call.received_at + NETWORK_DELAY_SECONDS / self.speed
            for call in self.simulator.calls
            if call.method == "chat.delete" and call.error is None
        }
        versions = []
        for place in self.channels:
            bot_messages = [
                m for m in self.simulator.messages(place, deleted=True) if m.user == self.simulator.bot_user_id
            ]
            for order, message in enumerate(bot_messages):
                for version in message.versions:
                    versions.append(Version(version.shown_at, message.ts, order, version.text, message.thread_ts))
                if message.deleted:
                    versions.append(Version(deleted[message.ts], message.ts, order, None, message.thread_ts))
        return sorted(versions, key=lambda version: version.at)


class DiscordCellPlatform(CellPlatform):
    """Local Discord of one measurement."""

    name = "discord"

    async def _open(self) -> None:
        self.simulator = DiscordSimulator(speed=self.speed)
        await self.simulator.__aenter__()
        self.simulator.faults.set_latency(NETWORK_DELAY_SECONDS / self.speed)
        self.channels = [self.simulator.add_channel(f"channel-{number}") for number in range(self.load.channels)]

    async def _close(self) -> None:
        await self.simulator.__aexit__(None, None, None)

    async def post_prompt(self, number: int) -> MeasuredPrompt:
        channel = self.load.channel(number)
        text = f"<@{self.simulator.bot_id}> prompt {number}"
        message = await self.run(self.simulator.post_message("ada", self.channels[channel], text))
        return MeasuredPrompt(number, channel, self.channels[channel].id, message.id)

    def list_calls(self) -> Sequence[tuple[str, float, bool]]:
        return [(call.route, call.received_at, call.rate_limited) for call in self.simulator.calls]

    def list_versions(self) -> Sequence[Version]:
        deleted = {
            call.path.rpartition("/")[2]: call.received_at + NETWORK_DELAY_SECONDS / self.speed
            for call in self.simulator.calls
            if call.route.startswith("DELETE /channels/{channel}/messages/{message}") and call.status == 204
        }
        versions = []
        for place in self.channels:
            bot_messages = [
                m for m in self.simulator.messages(place, deleted=True) if m.author.id == self.simulator.bot_id
            ]
            for order, message in enumerate(bot_messages):
                reply_to = message.reply_to.id if message.reply_to else None
                for version in message.versions:
                    versions.append(Version(version.shown_at, message.id, order, version.text, reply_to))
                if message.deleted:
                    versions.append(Version(deleted[message.id], message.id, order, None, reply_to))
        return sorted(versions, key=lambda version: version.at)


PLATFORMS: dict[str, type[CellPlatform]] = {
    platform.name: platform for platform in (SlackCellPlatform, DiscordCellPlatform)
}
