"""Sessions with the bot on both platforms."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from benchmarks.soak.script import names
from channels.i18n.messages import PLACEHOLDER, RESET_DONE, STOP
from sandbox.discord import DiscordMessage, DiscordSandbox
from sandbox.discord import GuildChannel as DiscordChannel
from sandbox.slack import SlackConversation as SlackChannel
from sandbox.slack import SlackFile, SlackMessage, SlackSandbox

#: Number of threads in one Slack channel.
THREADS = 5

_files = count(1)


@dataclass(frozen=True, slots=True)
class Told:
    """Message of the bot.

    Attributes:
        versions: its texts with their times (monotonic seconds).
        is_finished: whether it is final.
    """

    versions: tuple[tuple[float, str], ...]
    is_finished: bool

    @property
    def text(self) -> str:
        return self.versions[-1][1]


class Place(Protocol):
    """Place of a session."""

    async def say(self, text: str, papers: Mapping[str, str] | None = None) -> Any:
        """Send a message with text files, given by name."""

    async def edit(self, said: Any, text: str) -> None: ...

    def told(self) -> list[Told]:
        """Return the bot's messages here."""


class Platform(Protocol):
    name: str

    @property
    def sandbox(self) -> Any: ...

    @property
    def settings(self) -> dict[str, str]: ...

    def place(self, number: int) -> Place: ...

    def heard_at(self) -> dict[str, float]:
        """Return the first delivery of each message as the platform knows it (monotonic seconds)."""

    def spoken(self) -> int:
        """Return the number of the bot's messages."""


def shown(place: Place) -> str:
    """Return the bot's messages without confirmations of a reset."""
    return "".join(told.text for told in place.told() if told.text != RESET_DONE)


def starts_over(place: Place) -> int:
    """Return the number of confirmations of a reset."""
    return sum(told.text == RESET_DONE for told in place.told())


def unfinished(place: Place) -> int:
    """Return the number of the bot's unfinished messages."""
    return sum(not told.is_finished for told in place.told())


class SlackThread:
    """Thread in a channel or in direct messages."""

    def __init__(self, slack: SlackSandbox, channel: SlackChannel, user: str) -> None:
        self._slack = slack
        self._user = user
        self._mention = "" if channel.is_dm else f"<@{slack.bot_user_id}> "
        self.channel = channel
        self.root: SlackMessage | None = None

    async def say(self, text: str, papers: Mapping[str, str] | None = None) -> SlackMessage:
        thread = self.root.ts if self.root else None
        files = [SlackFile(f"F{next(_files)}", name, text.encode()) for name, text in (papers or {}).items()]
        said = await self._slack.post_message(
            self._user, self.channel, f"{self._mention}{text}", thread_ts=thread, files=files
        )
        self.root = self.root or said
        return said

    async def edit(self, said: SlackMessage, text: str) -> None:
        await self._slack.edit_message(self._user, said, f"{self._mention}{text}")

    def told(self) -> list[Told]:
        if self.root is None:
            return []
        thread = self._slack.messages(self.channel, thread_ts=self.root.ts)
        return [_slack_told(message) for message in thread if message.user == self._slack.bot_user_id]


def _slack_told(message: SlackMessage) -> Told:
    is_live = message.stream is not None and message.stream.is_live
    versions = tuple((version.shown_at, version.text) for version in message.versions)
    return Told(versions, not is_live and _stands(message.text, message.buttons))


def _stands(text: str, buttons: Collection[str]) -> bool:
    """Return whether a message is final: it has text and no Stop button."""
    return text not in ("", PLACEHOLDER) and STOP not in buttons


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
        return SlackThread(self.sandbox, channel, "ada")

    def direct(self, user: str) -> SlackThread:
        """Begin a session in the direct messages of a user."""
        return SlackThread(self.sandbox, self.sandbox.open_dm(user), user)

    def heard_at(self) -> dict[str, float]:
        """Return the acknowledgements: the bot sends them after storing a message."""
        return _first(
            (event.get("text", ""), envelope.acknowledged_at)
            for envelope in self.sandbox.envelopes
            if envelope.acknowledged_at is not None
            for event in [envelope.payload.get("event", {})]
            if event.get("user") != self.sandbox.bot_user_id
        )

    def spoken(self) -> int:
        sandbox = self.sandbox
        places = [*sandbox.channels.values(), *map(sandbox.open_dm, sandbox.people)]
        return sum(m.user == sandbox.bot_user_id for place in places for m in sandbox.messages(place))


class DiscordRoom:
    """Channel, thread or direct messages."""

    def __init__(self, discord: DiscordSandbox, channel: DiscordChannel, user: str) -> None:
        self._discord = discord
        self._user = user
        self._mention = "" if channel.is_dm else f"<@{discord.bot_id}> "
        self.channel = channel

    async def say(self, text: str, papers: Mapping[str, str] | None = None) -> DiscordMessage:
        files = {name: text.encode() for name, text in (papers or {}).items()}
        return await self._discord.post_message(self._user, self.channel, f"{self._mention}{text}", files=files)

    async def edit(self, said: DiscordMessage, text: str) -> None:
        await self._discord.edit_message(self._user, said, f"{self._mention}{text}")

    def told(self) -> list[Told]:
        return [
            Told(tuple((version.at, version.text) for version in m.versions), _stands(m.text, m.buttons))
            for m in self._discord.messages(self.channel)
            if m.author.id == self._discord.bot_id and m.ephemeral_to is None
        ]


class Discord:
    name = "discord"

    def __init__(self, sandbox: DiscordSandbox) -> None:
        self.sandbox = sandbox

    @property
    def settings(self) -> dict[str, str]:
        return {"DISCORD_API_URL": self.sandbox.api_url, "DISCORD_BOT_TOKEN": self.sandbox.bot_token}

    def place(self, number: int) -> DiscordRoom:
        return DiscordRoom(self.sandbox, self.sandbox.add_channel(f"soak-{number}"), "ada")

    async def thread(self, number: int) -> DiscordRoom:
        """Begin a thread in a new channel."""
        channel = self.sandbox.add_channel(f"threads-{number}")
        root = await self.sandbox.post_message("ada", channel, "Let us talk of something else.")
        return DiscordRoom(self.sandbox, await self.sandbox.start_thread("ada", root, "something else"), "ada")

    def direct(self, user: str) -> DiscordRoom:
        return DiscordRoom(self.sandbox, self.sandbox.open_dm(user), user)

    def heard_at(self) -> dict[str, float]:
        """Return the deliveries to a connected or resumed client."""
        return _first(
            (event.data["content"], event.sent_at)
            for event in self.sandbox.events
            if event.name == "MESSAGE_CREATE" and event.sent_at is not None
            if event.data["author"]["id"] != str(self.sandbox.bot_id)
        )

    def spoken(self) -> int:
        sandbox = self.sandbox
        channels = [*sandbox.channels.values(), *map(sandbox.open_dm, sandbox.people)]
        places = [place for channel in channels for place in (channel, *sandbox.threads(channel))]
        told = (m for place in places for m in sandbox.messages(place) if m.ephemeral_to is None)
        return sum(m.author.id == sandbox.bot_id for m in told)


def _first(told: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the first time of each message that the texts name."""
    times: dict[str, float] = {}
    for text, at in told:
        for name in names(text):
            times[name] = min(at, times.get(name, at))
    return times
