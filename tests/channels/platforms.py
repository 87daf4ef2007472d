"""Common interface of the bot on Slack and on Discord, for scenarios on both."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from channels.rate_limits.caller import Caller
from chatrig.discord import DiscordMessage
from chatrig.discord import GuildChannel as DiscordPlace
from chatrig.slack import SlackFile, SlackMessage, SlackSimulator
from tests.channels.discord import conftest as discord_tests
from tests.channels.slack import conftest as slack_tests
from tests.fixtures.buttons import wait_for_button

PLATFORMS = ("slack", "discord")

#: Seconds between the tries of a call with transient errors.
PAUSES = (0.01, 0.02, 0.05)


class Chat(Protocol):
    """Conversation of users with a running bot on one platform.

    Attributes:
        bot: the running bot.
        simulator: the local platform.
        calls: the platform's API methods for "post", "edit", "delete", "find", "react" and "upload".
    """

    bot: Any
    simulator: Any
    calls: ClassVar[dict[str, str]]

    async def say(self, text: str, *, user: str = "ada", files: Mapping[str, bytes] | None = None) -> Any: ...

    async def answer(self, question: Any, text: str, *, user: str) -> None:
        """Write a message to the bot that refers to a question: a reply, or on Slack a message in its thread."""

    def count_downloads(self) -> int:
        """Return the number of times that the bot has downloaded a file."""

    def list_replies(self) -> list[Any]:
        """Return the bot's public messages, oldest first, without messages of only a file."""

    def list_files(self) -> list[tuple[str, bytes]]:
        """Return (name, content) of the bot's visible files, oldest first."""

    def list_private_messages(self, user: str = "ada") -> list[str]:
        """Return the texts of the bot's messages that only this user can see."""

    async def press(self, label: str, *, user: str = "ada") -> None:
        """Click the button `label` on the newest reply that has it."""

    async def rate(self, label: str, *, user: str = "ada") -> None:
        """Click the rating button `label` on the newest reply."""

    def count_reactions(self) -> int:
        """Return the number of the bot's reactions."""


class SlackChat:
    """Conversation with a running bot in a Slack channel."""

    calls: ClassVar[dict[str, str]] = {
        "post": "chat.postMessage",
        "edit": "chat.update",
        "delete": "chat.delete",
        "find": "conversations.replies",
        "react": "reactions.add",
        "upload": "files.completeUploadExternal",
    }

    def __init__(self, bot: slack_tests.WiredSlackBot, channel: str) -> None:
        self.bot = bot
        self.simulator = bot.slack
        self.channel = self.simulator.channels[channel]
        self.root: SlackMessage | None = None

    async def say(self, text: str, *, user: str = "ada", files: Mapping[str, bytes] | None = None) -> SlackMessage:
        attachments = [SlackFile(f"F{number}", name, data) for number, (name, data) in enumerate((files or {}).items())]
        message = await self.bot.mention_bot(
            user, self.channel.id, text, thread_ts=self.root.ts if self.root else None, files=attachments
        )
        self.root = self.root or message
        return message

    async def answer(self, question: SlackMessage, text: str, *, user: str) -> None:
        await self.bot.mention_bot(user, self.channel.id, text, thread_ts=question.thread_ts)

    def count_downloads(self) -> int:
        return sum(call.method == "download" for call in self.simulator.calls)

    def list_replies(self) -> list[SlackMessage]:
        return [m for m in self._list_bot_messages() if m.ephemeral_to is None and not m.files]

    def list_files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for message in self._list_bot_messages() for file in message.files]

    def list_private_messages(self, user: str = "ada") -> list[str]:
        return [m.text for m in self._list_bot_messages() if m.ephemeral_to == self.simulator.people[user].id]

    async def press(self, label: str, *, user: str = "ada") -> None:
        message, action = await wait_for_button(self.simulator, label, self.list_replies)
        assert await self.simulator.click_button(user, message, action)

    async def rate(self, label: str, *, user: str = "ada") -> None:
        await self.press(label, user=user)

    def count_reactions(self) -> int:
        return sum(len(m.reactions) for m in self.simulator.messages(self.channel))

    def _list_bot_messages(self) -> list[SlackMessage]:
        return [m for m in self.simulator.messages(self.channel) if m.user == self.simulator.bot_user_id]


class DiscordChat:
    """Conversation with a running bot in a Discord channel or thread."""

    calls: ClassVar[dict[str, str]] = {
        "post": discord_tests.POST,
        "edit": discord_tests.PATCH,
        "delete": "DELETE /channels/{channel}/messages/{message}",
        "find": discord_tests.HISTORY,
        "react": "PUT /channels/{channel}/messages/{message}/reactions/{emoji}/@me",
        "upload": discord_tests.PATCH,
    }

    def __init__(self, bot: discord_tests.WiredDiscordBot, place: DiscordPlace) -> None:
        self.bot = bot
        self.simulator = bot.server
        self.place = place

    async def say(self, text: str, *, user: str = "ada", files: Mapping[str, bytes] | None = None) -> DiscordMessage:
        return await self.bot.mention_bot(user, self.place, text, files=files)

    async def answer(self, question: DiscordMessage, text: str, *, user: str) -> None:
        await self.bot.mention_bot(user, self.place, text, reply_to=question)

    def count_downloads(self) -> int:
        return len(self.simulator.downloads)

    def list_replies(self) -> list[DiscordMessage]:
        return [m for m in self._list_bot_messages() if m.ephemeral_to is None]

    def list_files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for message in self._list_bot_messages() for file in message.content.attachments]

    def list_private_messages(self, user: str = "ada") -> list[str]:
        return [m.text for m in self._list_bot_messages() if m.ephemeral_to == self.simulator.people[user]]

    async def press(self, label: str, *, user: str = "ada") -> None:
        message, action = await wait_for_button(self.simulator, label, self.list_replies)
        responses = await self.simulator.click_button(user, message, action)
        assert not [m.text for m in responses if m.author.id != self.simulator.bot_id]

    async def rate(self, label: str, *, user: str = "ada") -> None:
        await self.simulator.run_message_command(user, self.list_replies()[-1], label)

    def count_reactions(self) -> int:
        return sum(len(m.reactions) for m in self.simulator.messages(self.place))

    def _list_bot_messages(self) -> list[DiscordMessage]:
        return [m for m in self.simulator.messages(self.place) if m.author.id == self.simulator.bot_id]


def list_texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.list_replies()]


async def wait_for_texts(chat: Chat, predicate: Callable[[list[str]], object]) -> list[str]:
    """Wait until the texts of the bot's messages satisfy `predicate`, and return them.

    Raises:
        TimeoutError: with the current texts.
    """
    try:
        await chat.simulator.wait_for(lambda: predicate(list_texts(chat)))
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{list_texts(chat)}") from None
    return list_texts(chat)


async def wait_for_answer(chat: Chat, *wanted: str) -> None:
    await wait_for_texts(chat, lambda found: found == list(wanted))


@asynccontextmanager
async def run_simulator(platform: str) -> AsyncIterator[Any]:
    simulator_class: Any = SlackSimulator if platform == "slack" else discord_tests.run_discord
    async with simulator_class(rate_limits=False) as simulator:
        yield simulator


@asynccontextmanager
async def run_conversation(simulator: Any, folder: Path, *script: Any, **kwargs: Any) -> AsyncIterator[Chat]:
    """Run a bot with short retry pauses, and yield a conversation in a channel.

    Args:
        script: the model's answers.
        kwargs: settings of the bot.
    """
    is_slack = isinstance(simulator, SlackSimulator)
    run_bot: Any = slack_tests.run_bot if is_slack else discord_tests.run_bot
    async with run_bot(simulator, folder, *script, **kwargs) as bot:
        shorten_pauses(bot)
        yield SlackChat(bot, "general") if is_slack else DiscordChat(bot, simulator.channels["general"])


def shorten_pauses(bot: Any) -> None:
    """Shorten the retry pauses of a bot's API calls, and speed its rate limits up."""
    bot.channel._api._caller = Caller("test", pauses=PAUSES, speed=100)
