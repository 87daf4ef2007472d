"""Common interface of the local Slack and Discord for acceptance tests."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.discord import DiscordMessageVersion as DiscordVersion
from chatrig.discord import GuildChannel as DiscordPlace
from chatrig.slack import SlackFile, SlackMessage, SlackSimulator
from chatrig.slack import SlackMessageVersion as SlackVersion
from tests.fixtures.buttons import wait_for_button

T = TypeVar("T")

_numbers = itertools.count(1)

#: Content of the files in messages.
CONTENT = b"This is in the file."


@dataclass(frozen=True, slots=True)
class BotMessage:
    """Bot message as users see it.

    Attributes:
        versions: the texts of the message over time, oldest first.
        pings: the ids of the users that the message notified.
    """

    versions: tuple[str, ...]
    pings: frozenset[str]

    @property
    def text(self) -> str:
        return self.versions[-1]


class BotConversation(Protocol):
    """Conversation of users with the bot, in a session of its own."""

    async def say(self, text: str, *, user: str = "ada", files: Sequence[str] = (), mentions_bot: bool = True) -> Any:
        """Post a user's message, and return the platform's message.

        Args:
            files: the names of attached files, whose content is `CONTENT`.
            mentions_bot: whether the message mentions the bot (in channels and threads).
        """

    async def edit(self, message: Any, text: str) -> None:
        """Edit a message of Ada that mentions the bot.

        Args:
            message: the platform's message.
        """

    def replies(self) -> list[BotMessage]:
        """Return the bot's messages in the conversation, oldest first."""

    def button_labels(self) -> list[str]:
        """Return the labels of the buttons under the newest reply."""

    def all_button_labels(self) -> list[str]:
        """Return the labels of the buttons under all replies, oldest first."""

    async def press(self, label: str, *, user: str = "ada") -> bool:
        """Click the button `label` on the newest reply that has it.

        Returns:
            Whether the bot acknowledged the click.
        """

    async def wait_for_form(self, *, user: str = "ada") -> None:
        """Wait until the bot has opened a form (modal) for the user."""

    async def submit_form(self, *entries: str, user: str = "ada") -> bool:
        """Fill in and submit the form (modal) that is open for a user.

        Args:
            entries: the values of the first fields; for a menu, the value of an option. Further fields keep their
                values.

        Returns:
            Whether the bot accepted the form.
        """

    def private_messages(self, user: str) -> list[str]:
        """Return the texts of the bot's messages that only this user sees, oldest first."""

    def file_names(self) -> list[str]:
        """Return the names of the bot's files in the conversation, oldest first."""

    def count_reactions(self) -> int:
        """Return the number of the bot's reactions on the conversation's messages."""


class Platform(Protocol):
    """Local Slack or Discord, with users who talk to the bot."""

    name: str

    @property
    def simulator(self) -> Any: ...

    @property
    def settings(self) -> dict[str, str]:
        """Settings (environment variables) that connect the bot to the platform."""

    def mention(self, user: str) -> str: ...

    def start_conversation(self, name: str = "") -> BotConversation:
        """Create a channel, and return a conversation in it.

        Args:
            name: the name of the channel; a new one if empty.
        """

    def find_conversation(self, name: str) -> BotConversation:
        """Return the conversation in the channel of this name."""

    def start_dm(self, user: str) -> BotConversation:
        """Return a conversation of `user` in a DM with the bot."""

    async def start_thread(self) -> BotConversation:
        """Start a thread without the bot, and return a conversation in it."""

    async def send_unrelated_messages(self) -> None:
        """Post messages that the bot must not answer: without a mention, or by other bots."""

    @property
    def bot_message_count(self) -> int:
        """Number of messages that the bot has posted in all channels and DMs."""

    @property
    def is_connected(self) -> bool: ...

    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 60) -> T: ...  # noqa: ASYNC109


class SlackBotConversation:
    """Conversation in a Slack thread or DM."""

    def __init__(
        self, slack: SlackSimulator, channel: str, *, direct: bool = False, root: SlackMessage | None = None
    ) -> None:
        self._slack = slack
        self._channel = channel
        self._prefix = "" if direct else f"<@{slack.bot_user_id}> "
        self._root = root

    async def say(
        self, text: str, *, user: str = "ada", files: Sequence[str] = (), mentions_bot: bool = True
    ) -> SlackMessage:
        text = f"{self._prefix if mentions_bot else ''}{text}"
        root = self._root.ts if self._root else None
        attachments = [SlackFile(f"F{next(_numbers)}", name, CONTENT) for name in files]
        message = await self._slack.post_message(user, self._channel, text, thread_ts=root, files=attachments)
        self._root = self._root or message
        return message

    async def edit(self, message: SlackMessage, text: str) -> None:
        await self._slack.edit_message("ada", message, f"{self._prefix}{text}")

    def replies(self) -> list[BotMessage]:
        return [_bot_message(message) for message in self._bot_messages()]

    def button_labels(self) -> list[str]:
        return list(self._bot_messages()[-1].buttons)

    def all_button_labels(self) -> list[str]:
        return [label for message in self._bot_messages() for label in message.buttons]

    async def press(self, label: str, *, user: str = "ada") -> bool:
        message, action = await wait_for_button(self._slack, label, self._bot_messages)
        return await self._slack.click_button(user, message, action)

    async def wait_for_form(self, *, user: str = "ada") -> None:
        await self._slack.wait_for(lambda: self._slack.modals(user))

    async def submit_form(self, *entries: str, user: str = "ada") -> bool:
        values = {f"field-{i}": entry for i, entry in enumerate(entries)}
        return await self._slack.submit_modal(self._slack.modals(user)[-1], **values)

    def private_messages(self, user: str) -> list[str]:
        return [
            message.text
            for message in self._slack.messages(self._channel)
            if message.ephemeral_to == self._slack.people[user].id
        ]

    def file_names(self) -> list[str]:
        return [file.name for message in self._bot_messages() for file in message.files]

    def count_reactions(self) -> int:
        return sum(len(message.reactions) for message in self._thread())

    def _bot_messages(self) -> list[SlackMessage]:
        return [
            message
            for message in self._thread()
            if message.user == self._slack.bot_user_id and message.ephemeral_to is None
        ]

    def _thread(self) -> list[SlackMessage]:
        return self._slack.messages(self._channel, thread_ts=self._root.ts) if self._root else []


class Slack:
    """Local Slack, with users who talk to the bot."""

    name = "slack"

    def __init__(self, slack: SlackSimulator) -> None:
        self.simulator = slack
        self.wait_for = slack.wait_for

    @property
    def settings(self) -> dict[str, str]:
        slack = self.simulator
        return {
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
        }

    def mention(self, user: str) -> str:
        return f"<@{self.simulator.people[user].id}>"

    def start_conversation(self, name: str = "") -> SlackBotConversation:
        """Create a channel, and return a conversation in a thread of it.

        A channel of its own avoids rate limits shared with other conversations.
        """
        channel = self.simulator.add_channel(name or f"conversation-{next(_numbers)}")
        return SlackBotConversation(self.simulator, channel.id)

    def find_conversation(self, name: str) -> SlackBotConversation:
        channel = self.simulator.channels[name].id
        return SlackBotConversation(self.simulator, channel, root=self.simulator.messages(channel)[0])

    def start_dm(self, user: str) -> SlackBotConversation:
        return SlackBotConversation(self.simulator, self.simulator.open_dm(user).id, direct=True)

    async def start_thread(self) -> SlackBotConversation:
        return self.start_conversation()

    async def send_unrelated_messages(self) -> None:
        slack, mention = self.simulator, f"<@{self.simulator.bot_user_id}>"
        message = await slack.post_message("ada", "general", "good morning")
        await slack.post_message("grace", "general", "morning", thread_ts=message.ts)
        await slack.post_as_other_bot("robot", "general", f"{mention} beep")
        await slack.edit_message("ada", message, "good morning, all")

    @property
    def bot_message_count(self) -> int:
        return sum(call.method in ("chat.postMessage", "chat.startStream") for call in self.simulator.calls)

    @property
    def is_connected(self) -> bool:
        return bool(self.simulator.connection_count)


class DiscordBotConversation:
    """Conversation in a Discord channel, thread or DM."""

    def __init__(self, discord: DiscordSimulator, place: DiscordPlace) -> None:
        self._discord = discord
        self._place = place

    async def say(
        self, text: str, *, user: str = "ada", files: Sequence[str] = (), mentions_bot: bool = True
    ) -> DiscordMessage:
        mention = self._mention if mentions_bot else ""
        contents = dict.fromkeys(files, CONTENT)
        return await self._discord.post_message(user, self._place, f"{mention}{text}", files=contents)

    async def edit(self, message: DiscordMessage, text: str) -> None:
        await self._discord.edit_message("ada", message, f"{self._mention}{text}")

    def replies(self) -> list[BotMessage]:
        return [_bot_message(message) for message in self._bot_messages()]

    def button_labels(self) -> list[str]:
        return list(self._bot_messages()[-1].buttons)

    def all_button_labels(self) -> list[str]:
        return [label for message in self._bot_messages() for label in message.buttons]

    async def press(self, label: str, *, user: str = "ada") -> bool:
        message, action = await wait_for_button(self._discord, label, self._bot_messages)
        responses = await self._discord.click_button(user, message, action)
        return all(response.author.id == self._discord.bot_id for response in responses)

    async def wait_for_form(self, *, user: str = "ada") -> None:
        await self._discord.wait_for(lambda: self._discord.modals(user))

    async def submit_form(self, *entries: str, user: str = "ada") -> bool:
        modal = self._discord.modals(user)[-1]
        is_menu = ["options" in field for field in modal.inputs.values()]
        given = [[entry] if is_menu[i] else entry for i, entry in enumerate(entries)]
        values = dict(zip(modal.inputs, given, strict=False))
        await self._discord.submit_modal(modal, values)
        return modal not in self._discord.modals(user)

    def private_messages(self, user: str) -> list[str]:
        messages = self._discord.messages(self._place)
        return [message.text for message in messages if message.ephemeral_to == self._discord.people[user]]

    def file_names(self) -> list[str]:
        return [file.name for message in self._bot_messages() for file in message.content.attachments]

    def count_reactions(self) -> int:
        return sum(len(message.reactions) for message in self._discord.messages(self._place))

    @property
    def _mention(self) -> str:
        return "" if self._place.is_dm else f"<@{self._discord.bot_id}> "

    def _bot_messages(self) -> list[DiscordMessage]:
        return [
            message
            for message in self._discord.messages(self._place)
            if message.author.id == self._discord.bot_id and message.ephemeral_to is None
        ]


class Discord:
    """Local Discord, with users who talk to the bot."""

    name = "discord"

    def __init__(self, discord: DiscordSimulator) -> None:
        self.simulator = discord
        self.wait_for = discord.wait_for

    @property
    def settings(self) -> dict[str, str]:
        return {"DISCORD_API_URL": self.simulator.api_url, "DISCORD_BOT_TOKEN": self.simulator.bot_token}

    def mention(self, user: str) -> str:
        return f"<@{self.simulator.people[user].id}>"

    def start_conversation(self, name: str = "") -> DiscordBotConversation:
        channel = self.simulator.add_channel(name or f"conversation-{next(_numbers)}")
        return DiscordBotConversation(self.simulator, channel)

    def find_conversation(self, name: str) -> DiscordBotConversation:
        return DiscordBotConversation(self.simulator, self.simulator.channels[name])

    def start_dm(self, user: str) -> DiscordBotConversation:
        return DiscordBotConversation(self.simulator, self.simulator.open_dm(user))

    async def start_thread(self) -> DiscordBotConversation:
        root = await self.simulator.post_message("ada", "general", "a root")
        return DiscordBotConversation(
            self.simulator, await self.simulator.start_thread("ada", root, f"thread {next(_numbers)}")
        )

    async def send_unrelated_messages(self) -> None:
        discord, mention = self.simulator, f"<@{self.simulator.bot_id}>"
        message = await discord.post_message("ada", "general", "good morning")
        await discord.post_message("grace", "general", "morning", reply_to=message)
        await discord.post_as_other_bot("robot", "general", f"{mention} beep")
        await discord.post_as_other_bot("hook", "general", f"{mention} beep", webhook=True)
        await discord.edit_message("ada", message, "good morning, all")
        await discord.pin_message("ada", message)
        await discord.join_guild(f"guest-{next(_numbers)}")
        await discord.start_forum_post("ada", "ideas", f"post {next(_numbers)}", "what if")

    @property
    def bot_message_count(self) -> int:
        return sum(call.route == "POST /channels/{channel}/messages" for call in self.simulator.calls)

    @property
    def is_connected(self) -> bool:
        return bool(self.simulator.connection_count)


def _bot_message(message: SlackMessage | DiscordMessage) -> BotMessage:
    pings = frozenset[str]().union(*(version.pings for version in message.versions))
    return BotMessage(tuple(map(_visible_text, message.versions)), pings)


def _visible_text(version: SlackVersion | DiscordVersion) -> str:
    """Return the text of a message version; for a stream without text its card title."""
    if isinstance(version, SlackVersion) and version.tasks and not version.text:
        return version.tasks[-1].title
    return version.text
