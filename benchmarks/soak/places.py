"""Where people talk to the bot in a soak, on both platforms."""

from collections.abc import Iterable
from typing import Any, Protocol

from benchmarks.soak.script import names
from sandbox.discord import Channel as DiscordChannel
from sandbox.discord import DiscordSandbox
from sandbox.slack import Message as SlackMessage
from sandbox.slack import SlackSandbox

#: Threads that one channel of Slack has.
THREADS = 5


class Place(Protocol):
    """One session."""

    async def say(self, text: str) -> None: ...

    def shown(self) -> str:
        """All that the bot shows here."""


class Platform(Protocol):
    name: str

    @property
    def sandbox(self) -> Any: ...

    @property
    def settings(self) -> dict[str, str]: ...

    def place(self, number: int) -> Place: ...

    def heard_at(self) -> dict[str, float]:
        """When each message was heard first, as far as the platform knows: on the monotonic clock, in seconds."""


class SlackThread:
    def __init__(self, slack: SlackSandbox, channel: str) -> None:
        self._slack = slack
        self.channel = channel
        self.root: SlackMessage | None = None

    async def say(self, text: str) -> None:
        thread = self.root.ts if self.root else None
        said = await self._slack.say("ada", self.channel, f"<@{self._slack.bot_user_id}> {text}", thread_ts=thread)
        self.root = self.root or said

    def shown(self) -> str:
        if self.root is None:
            return ""
        thread = self._slack.messages(self.channel, thread_ts=self.root.ts)
        return "".join(message.text for message in thread if message.user == self._slack.bot_user_id)


class Slack:
    name = "slack"

    def __init__(self, sandbox: SlackSandbox) -> None:
        self.sandbox = sandbox

    @property
    def settings(self) -> dict[str, str]:
        sandbox = self.sandbox
        tokens = {"SLACK_BOT_TOKEN": sandbox.bot_token, "SLACK_APP_TOKEN": sandbox.app_token}
        return {"SLACK_API_URL": sandbox.api_url, **tokens}

    def place(self, number: int) -> SlackThread:
        name = f"soak-{number // THREADS}"
        channel = self.sandbox.channels.get(name) or self.sandbox.add_channel(name)
        return SlackThread(self.sandbox, channel.id)

    def heard_at(self) -> dict[str, float]:
        """Slack knows what it was acknowledged; the bot does so when a message is kept."""
        return _first(
            (event.get("text", ""), envelope.acknowledged_at)
            for envelope in self.sandbox.envelopes
            if envelope.acknowledged_at is not None
            for event in [envelope.payload.get("event", {})]
            if event.get("user") != self.sandbox.bot_user_id
        )


class DiscordRoom:
    def __init__(self, discord: DiscordSandbox, channel: DiscordChannel) -> None:
        self._discord = discord
        self.channel = channel

    async def say(self, text: str) -> None:
        await self._discord.say("ada", self.channel, f"<@{self._discord.bot_id}> {text}")

    def shown(self) -> str:
        return "".join(m.text for m in self._discord.messages(self.channel) if m.author.id == self._discord.bot_id)


class Discord:
    name = "discord"

    def __init__(self, sandbox: DiscordSandbox) -> None:
        self.sandbox = sandbox

    @property
    def settings(self) -> dict[str, str]:
        return {"DISCORD_API_URL": self.sandbox.api_url, "DISCORD_BOT_TOKEN": self.sandbox.bot_token}

    def place(self, number: int) -> DiscordRoom:
        return DiscordRoom(self.sandbox, self.sandbox.add_channel(f"soak-{number}"))

    def heard_at(self) -> dict[str, float]:
        """Discord knows what it has told a client that was there, or had come back."""
        return _first(
            (event.data["content"], event.sent_at)
            for event in self.sandbox.events
            if event.name == "MESSAGE_CREATE" and event.sent_at is not None
            if event.data["author"]["id"] != str(self.sandbox.bot_id)
        )


def _first(told: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The first time of each message that the texts name."""
    times: dict[str, float] = {}
    for text, at in told:
        for name in names(text):
            times[name] = min(at, times.get(name, at))
    return times
