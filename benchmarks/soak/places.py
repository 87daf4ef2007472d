"""Where people talk to the bot in a soak, on both platforms."""

from typing import Any, Protocol

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
