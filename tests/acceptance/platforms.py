"""Local Slack and Discord for acceptance tests, and conversations of users with a bot that may be killed."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chatrig.discord import DiscordSimulator
from chatrig.discord import GuildChannel as DiscordPlace
from chatrig.slack import SlackSimulator
from tests.fixtures.buttons import wait_for_button
from tests.scenarios.chat import Chat, DiscordChat, SlackChat

_numbers = itertools.count(1)

#: Content of the files in messages.
CONTENT = b"This is in the file."


@dataclass(frozen=True, slots=True)
class BotMessage:
    """Bot message as users see it.

    Attributes:
        versions: the texts of the message over time, oldest first.
    """

    versions: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.versions[-1]


class BotConversation:
    """Conversation of users with the bot, in a session of its own.

    Args:
        chat: the users' chat, in a channel of its own or in a DM.
        is_direct: whether it is a DM, where no mention is typed.
    """

    def __init__(self, chat: Chat, *, is_direct: bool = False) -> None:
        self.chat = chat
        self._is_direct = is_direct

    async def say(self, text: str, *, user: str = "ada", files: Sequence[str] = (), mentions_bot: bool = True) -> Any:
        """Post a user's message, and return the platform's message.

        Args:
            files: the names of attached files, whose content is `CONTENT`.
            mentions_bot: whether the message mentions the bot (in channels and threads).
        """
        contents = dict.fromkeys(files, CONTENT)
        return await self.chat.say(text, user=user, mentions_bot=mentions_bot and not self._is_direct, files=contents)

    async def edit(self, message: Any, text: str) -> None:
        """Edit a message of Ada that mentions the bot."""
        await self.chat.edit(message, text)

    def replies(self) -> list[BotMessage]:
        """Return the bot's messages in the conversation, oldest first."""
        return [BotMessage(tuple(map(_visible_text, message.versions))) for message in self._list_messages()]

    def button_labels(self) -> list[str]:
        """Return the labels of the buttons under the newest reply."""
        return list(self._list_messages()[-1].buttons)

    def all_button_labels(self) -> list[str]:
        """Return the labels of the buttons under all replies, oldest first."""
        return [label for message in self._list_messages() for label in message.buttons]

    async def press(self, label: str, *, user: str = "ada") -> bool:
        """Click the button `label` on the newest reply that has it, and return whether the bot acknowledged it."""
        simulator = self.chat.simulator
        message, action = await wait_for_button(simulator, label, self._list_messages)
        outcome = await simulator.click_button(user, message, action)
        return outcome if isinstance(outcome, bool) else all(m.author.id == simulator.bot_id for m in outcome)

    async def wait_for_form(self) -> None:
        """Wait until the bot has opened a form for Ada."""
        await self.chat.simulator.wait_for(lambda: self.chat.simulator.modals("ada"))

    def private_messages(self, user: str) -> list[str]:
        """Return the texts of the bot's messages that only this user sees, oldest first."""
        return self.chat.list_private_messages(user)

    def file_names(self) -> list[str]:
        """Return the names of the bot's files in the conversation, oldest first."""
        return [name for name, _ in self.chat.list_files()]

    def count_reactions(self) -> int:
        """Return the number of the bot's reactions on the conversation's messages."""
        return self.chat.count_reactions()

    def _list_messages(self) -> list[Any]:
        """Return the bot's public messages; on Slack those in the thread of the first question."""
        messages = [message for message in self.chat.list_bot_messages() if message.ephemeral_to is None]
        if not isinstance(self.chat, SlackChat):
            return messages
        root = self.chat.root
        return [message for message in messages if root and message.thread_ts == root.ts]


class DiscordBotConversation(BotConversation):
    """Conversation in a Discord channel, thread or DM."""

    def __init__(self, discord: DiscordSimulator, place: DiscordPlace) -> None:
        super().__init__(DiscordChat(discord, place), is_direct=place.is_dm)


class Platform(Protocol):
    """Local Slack or Discord, with users who talk to the bot."""

    name: str
    simulator: Any
    wait_for: Callable[..., Awaitable[Any]]

    @property
    def settings(self) -> dict[str, str]:
        """Settings (environment variables) that connect the bot to the platform."""

    def start_conversation(self, name: str = "") -> BotConversation:
        """Create a channel, and return a conversation in it.

        A channel of its own avoids rate limits shared with other conversations.

        Args:
            name: the name of the channel; a new one if empty.
        """

    def find_conversation(self, name: str) -> BotConversation:
        """Return the conversation in the channel of this name."""

    def start_dm(self, user: str) -> BotConversation:
        """Return a conversation of `user` in a DM with the bot."""

    async def start_thread(self) -> BotConversation:
        """Start a thread without the bot, and return a conversation in it."""

    @property
    def is_connected(self) -> bool: ...


class Slack:
    """Local Slack, with users who talk to the bot."""

    name = "slack"

    def __init__(self, slack: SlackSimulator) -> None:
        self.simulator: Any = slack
        self.wait_for: Callable[..., Awaitable[Any]] = slack.wait_for

    @property
    def settings(self) -> dict[str, str]:
        slack = self.simulator
        return {
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
        }

    def start_conversation(self, name: str = "") -> BotConversation:
        name = name or f"conversation-{next(_numbers)}"
        self.simulator.add_channel(name)
        return BotConversation(SlackChat(self.simulator, name))

    def find_conversation(self, name: str) -> BotConversation:
        chat = SlackChat(self.simulator, name)
        chat.root = self.simulator.messages(name)[0]
        return BotConversation(chat)

    def start_dm(self, user: str) -> BotConversation:
        chat = SlackChat(self.simulator)
        chat.channel = self.simulator.open_dm(user)
        return BotConversation(chat, is_direct=True)

    async def start_thread(self) -> BotConversation:
        return self.start_conversation()

    @property
    def is_connected(self) -> bool:
        return bool(self.simulator.connection_count)


class Discord:
    """Local Discord, with users who talk to the bot."""

    name = "discord"

    def __init__(self, discord: DiscordSimulator) -> None:
        self.simulator: Any = discord
        self.wait_for: Callable[..., Awaitable[Any]] = discord.wait_for

    @property
    def settings(self) -> dict[str, str]:
        return {"DISCORD_API_URL": self.simulator.api_url, "DISCORD_BOT_TOKEN": self.simulator.bot_token}

    def start_conversation(self, name: str = "") -> BotConversation:
        channel = self.simulator.add_channel(name or f"conversation-{next(_numbers)}")
        return DiscordBotConversation(self.simulator, channel)

    def find_conversation(self, name: str) -> BotConversation:
        return DiscordBotConversation(self.simulator, self.simulator.channels[name])

    def start_dm(self, user: str) -> BotConversation:
        return DiscordBotConversation(self.simulator, self.simulator.open_dm(user))

    async def start_thread(self) -> BotConversation:
        root = await self.simulator.post_message("ada", "general", "a root")
        thread = await self.simulator.start_thread("ada", root, f"thread {next(_numbers)}")
        return DiscordBotConversation(self.simulator, thread)

    @property
    def is_connected(self) -> bool:
        return bool(self.simulator.connection_count)


def _visible_text(version: Any) -> str:
    """Return the text of a message version; for a stream without text its card title."""
    tasks = getattr(version, "tasks", ())
    return str(tasks[-1].title if tasks and not version.text else version.text)
