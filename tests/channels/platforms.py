"""Common interface of the bot on Slack and on Discord, for scenarios on both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from channels.rate_limits.retries import Caller
from chatrig.discord import GuildChannel
from chatrig.slack import SlackSimulator
from tests.channels.discord import conftest as discord_tests
from tests.channels.slack import conftest as slack_tests
from tests.scenarios import chat as scenarios
from tests.scenarios.chat import PLATFORMS, list_texts, wait_for_texts

__all__ = ["PLATFORMS", "list_texts", "wait_for_texts"]

#: Seconds between the tries of a call with transient errors.
PAUSES = (0.01, 0.02, 0.05)


class Chat(scenarios.Chat, Protocol):
    """Conversation of users with a running bot on one platform.

    Attributes:
        bot: the running bot.
        calls: the platform's API methods for "post", "edit", "delete", "find", "react" and "upload".
    """

    bot: Any
    calls: ClassVar[dict[str, str]]

    def count_downloads(self) -> int:
        """Return the number of times that the bot has downloaded a file."""


class SlackChat(scenarios.SlackChat):
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
        super().__init__(bot.slack, channel)
        self.bot = bot

    def count_downloads(self) -> int:
        return sum(call.method == "download" for call in self.simulator.calls)


class DiscordChat(scenarios.DiscordChat):
    """Conversation with a running bot in a Discord channel or thread."""

    calls: ClassVar[dict[str, str]] = {
        "post": discord_tests.POST,
        "edit": discord_tests.PATCH,
        "delete": "DELETE /channels/{channel}/messages/{message}",
        "find": discord_tests.HISTORY,
        "react": "PUT /channels/{channel}/messages/{message}/reactions/{emoji}/@me",
        "upload": discord_tests.PATCH,
    }

    def __init__(self, bot: discord_tests.WiredDiscordBot, place: GuildChannel) -> None:
        super().__init__(bot.server, place)
        self.bot = bot

    def count_downloads(self) -> int:
        return len(self.simulator.downloads)


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
    bot.platform.api._caller = Caller("test", pauses=PAUSES, speed=100)
