"""Channels, threads and DMs of the soak sessions, and the bot's messages in them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from benchmarks.soak.script import find_names
from channels.i18n.messages import PLACEHOLDER, RESET_DONE, STOP
from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.discord import GuildChannel as DiscordChannel
from chatrig.slack import SlackConversation as SlackChannel
from chatrig.slack import SlackFile, SlackMessage, SlackSimulator

#: Number of threads in one Slack channel.
THREADS_PER_CHANNEL = 5

_files = count(1)


@dataclass(frozen=True, slots=True)
class SoakBotMessage:
    """Message of the bot, with its texts over time as users see them.

    Attributes:
        versions: pairs of a time (monotonic seconds) and the text from then on, oldest first.
        is_finished: whether it has text (not the placeholder), is no live stream, and has no Stop button.
    """

    versions: tuple[tuple[float, str], ...]
    is_finished: bool

    @property
    def text(self) -> str:
        return self.versions[-1][1]


class Place(Protocol):
    """Channel, thread or DM of one session."""

    async def post_message(self, text: str, files: Mapping[str, str] | None = None) -> Any:
        """Post a message as the session's user, mentioning the bot outside DMs.

        Args:
            files: texts of the attached files by file name.

        Returns:
            The `SlackMessage` or `DiscordMessage`, as `edit_message` expects it.
        """

    async def edit_message(self, message: Any, text: str) -> None: ...

    def list_bot_messages(self) -> list[SoakBotMessage]:
        """Return the bot's messages in this channel, thread or DM, oldest first.

        Deleted messages are left out, and Discord's ephemeral ones too.
        """


class SoakPlatform(Protocol):
    """Simulator of a platform, with the bot's settings to connect to it."""

    name: str

    @property
    def simulator(self) -> Any: ...

    @property
    def settings(self) -> dict[str, str]: ...

    def create_place(self, number: int) -> Place: ...

    def receipt_times(self) -> dict[str, float]:
        """Return the time of the bot's receipt of each user message, by message name.

        A name is the id in the message's text, such as `s3-14`: see `find_names`. Messages that the bot has not
        received are left out. Times are monotonic seconds.
        """

    def count_bot_messages(self) -> int:
        """Return the number of the bot's messages in all channels, threads and DMs.

        Deleted messages do not count, nor do Discord's ephemeral ones.
        """


def visible_text(place: Place) -> str:
    """Return the joined texts of the bot's messages in a place, oldest first.

    There is no separator between the texts. Confirmations of a reset are left out.
    """
    return "".join(message.text for message in place.list_bot_messages() if message.text != RESET_DONE)


def count_resets(place: Place) -> int:
    """Return the number of the bot's confirmations of a reset in a place."""
    return sum(message.text == RESET_DONE for message in place.list_bot_messages())


def count_unfinished(place: Place) -> int:
    """Return the number of the bot's messages in a place that are not finished."""
    return sum(not message.is_finished for message in place.list_bot_messages())


class SlackThread:
    """Slack thread of one session, in a channel or a DM.

    The first message becomes the thread's root.
    """

    def __init__(self, slack: SlackSimulator, channel: SlackChannel, user: str) -> None:
        self._slack = slack
        self._user = user
        self._mention = "" if channel.is_dm else f"<@{slack.bot_user_id}> "
        self.channel = channel
        self.root: SlackMessage | None = None

    async def post_message(self, text: str, files: Mapping[str, str] | None = None) -> SlackMessage:
        thread = self.root.ts if self.root else None
        uploads = [SlackFile(f"F{next(_files)}", name, text.encode()) for name, text in (files or {}).items()]
        message = await self._slack.post_message(
            self._user, self.channel, f"{self._mention}{text}", thread_ts=thread, files=uploads
        )
        self.root = self.root or message
        return message

    async def edit_message(self, message: SlackMessage, text: str) -> None:
        await self._slack.edit_message(self._user, message, f"{self._mention}{text}")

    def list_bot_messages(self) -> list[SoakBotMessage]:
        if self.root is None:
            return []
        thread = self._slack.messages(self.channel, thread_ts=self.root.ts)
        return [_convert_slack_message(message) for message in thread if message.user == self._slack.bot_user_id]


def _convert_slack_message(message: SlackMessage) -> SoakBotMessage:
    is_live = message.stream is not None and message.stream.is_live
    versions = tuple((version.shown_at, version.text) for version in message.versions)
    return SoakBotMessage(versions, not is_live and _is_final(message.text, message.buttons))


def _is_final(text: str, buttons: Collection[str]) -> bool:
    """Return whether a bot message has text, no placeholder, and no Stop button.

    Args:
        buttons: the labels of the message's buttons.
    """
    return text not in ("", PLACEHOLDER) and STOP not in buttons


class SlackSoakPlatform:
    """Local Slack of a soak test, with the bot's settings for it."""

    name = "slack"

    def __init__(self, simulator: SlackSimulator) -> None:
        self.simulator = simulator

    @property
    def settings(self) -> dict[str, str]:
        simulator = self.simulator
        tokens = {"SLACK_BOT_TOKEN": simulator.bot_token, "SLACK_APP_TOKEN": simulator.app_token}
        return {"SLACK_API_URL": simulator.api_url, **tokens}

    def create_place(self, number: int) -> SlackThread:
        name = f"soak-{number // THREADS_PER_CHANNEL}"
        channel = self.simulator.channels.get(name) or self.simulator.add_channel(name)
        return SlackThread(self.simulator, channel, "ada")

    def open_dm(self, user: str) -> SlackThread:
        """Return a new thread of a session in a user's DM with the bot.

        It creates a missing DM. The thread begins with the first posted message.

        Args:
            user: the name or id of the user.
        """
        return SlackThread(self.simulator, self.simulator.open_dm(user), user)

    def receipt_times(self) -> dict[str, float]:
        """Return the time of the first acknowledgement of each message, by message name.

        For names see `find_names`. The bot acknowledges an event after storing the message. Times are monotonic
        seconds.
        """
        return _first_times(
            (event.get("text", ""), envelope.acknowledged_at)
            for envelope in self.simulator.envelopes
            if envelope.acknowledged_at is not None
            for event in [envelope.payload.get("event", {})]
            if event.get("user") != self.simulator.bot_user_id
        )

    def count_bot_messages(self) -> int:
        simulator = self.simulator
        places = [*simulator.channels.values(), *map(simulator.open_dm, simulator.people)]
        return sum(m.user == simulator.bot_user_id for place in places for m in simulator.messages(place))


class DiscordPlace:
    """Discord channel, thread or DM of one session."""

    def __init__(self, discord: DiscordSimulator, channel: DiscordChannel, user: str) -> None:
        self._discord = discord
        self._user = user
        self._mention = "" if channel.is_dm else f"<@{discord.bot_id}> "
        self.channel = channel

    async def post_message(self, text: str, files: Mapping[str, str] | None = None) -> DiscordMessage:
        contents = {name: text.encode() for name, text in (files or {}).items()}
        return await self._discord.post_message(self._user, self.channel, f"{self._mention}{text}", files=contents)

    async def edit_message(self, message: DiscordMessage, text: str) -> None:
        await self._discord.edit_message(self._user, message, f"{self._mention}{text}")

    def list_bot_messages(self) -> list[SoakBotMessage]:
        return [
            SoakBotMessage(tuple((v.shown_at, v.text) for v in m.versions), _is_final(m.text, m.buttons))
            for m in self._discord.messages(self.channel)
            if m.author.id == self._discord.bot_id and m.ephemeral_to is None
        ]


class DiscordSoakPlatform:
    """Local Discord of a soak test, with the bot's settings for it."""

    name = "discord"

    def __init__(self, simulator: DiscordSimulator) -> None:
        self.simulator = simulator

    @property
    def settings(self) -> dict[str, str]:
        return {"DISCORD_API_URL": self.simulator.api_url, "DISCORD_BOT_TOKEN": self.simulator.bot_token}

    def create_place(self, number: int) -> DiscordPlace:
        return DiscordPlace(self.simulator, self.simulator.add_channel(f"soak-{number}"), "ada")

    async def create_thread(self, number: int) -> DiscordPlace:
        """Create a channel with a message, and return the thread of that message.

        Args:
            number: the number in the channel's name.
        """
        channel = self.simulator.add_channel(f"threads-{number}")
        root = await self.simulator.post_message("ada", channel, "Another topic.")
        return DiscordPlace(self.simulator, await self.simulator.start_thread("ada", root, "another topic"), "ada")

    def open_dm(self, user: str) -> DiscordPlace:
        return DiscordPlace(self.simulator, self.simulator.open_dm(user), user)

    def receipt_times(self) -> dict[str, float]:
        """Return the time of each user message's delivery to the bot, by message name.

        For names see `find_names`. After a delivery to a resumed connection, it is the time of that one. Times are
        monotonic seconds.
        """
        return _first_times(
            (event.data["content"], event.sent_at)
            for event in self.simulator.events
            if event.name == "MESSAGE_CREATE" and event.sent_at is not None
            if event.data["author"]["id"] != str(self.simulator.bot_id)
        )

    def count_bot_messages(self) -> int:
        simulator = self.simulator
        channels = [*simulator.channels.values(), *map(simulator.open_dm, simulator.people)]
        places = [place for channel in channels for place in (channel, *simulator.threads(channel))]
        messages = (m for place in places for m in simulator.messages(place) if m.ephemeral_to is None)
        return sum(m.author.id == simulator.bot_id for m in messages)


def _first_times(texts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the earliest time of each message name: see `find_names`.

    Args:
        texts: (text, time) pairs; a text may contain several names.
    """
    times: dict[str, float] = {}
    for text, at in texts:
        for name in find_names(text):
            times[name] = min(at, times.get(name, at))
    return times
