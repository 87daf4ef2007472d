"""Message clients of the reimplemented policies, on the platforms' real clients."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import discord
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.replies.platforms import DiscordCellPlatform, MeasuredPrompt, SlackCellPlatform


class MessageClient(ABC):
    """Client that posts, edits and deletes the messages of one reply.

    A failed call raises the platform client's error.

    Attributes:
        size: the maximum length of a message in characters.
    """

    size: int

    @abstractmethod
    async def post(self, text: str) -> str:
        """Post a message, and return its id."""

    @abstractmethod
    async def edit(self, message: str, text: str) -> None: ...

    @abstractmethod
    async def delete(self, message: str) -> None: ...


class SlackMessageClient(MessageClient):
    """Client that posts in the Slack thread of the prompt.

    Args:
        field: the API argument for the text, `text` or `markdown_text`.
        size: the maximum length of that argument in characters.
    """

    def __init__(self, web: AsyncWebClient, prompt: MeasuredPrompt, field: str, size: int) -> None:
        self.size = size
        self._web = web
        self._channel = prompt.place
        self._thread = prompt.message
        self._field = field

    async def post(self, text: str) -> str:
        thread: Mapping[str, str] = {"channel": self._channel, "thread_ts": self._thread}
        answer = await self._web.api_call("chat.postMessage", json={**thread, self._field: text})
        return str(answer["ts"])

    async def edit(self, message: str, text: str) -> None:
        await self._web.api_call("chat.update", json={"channel": self._channel, "ts": message, self._field: text})

    async def delete(self, message: str) -> None:
        await self._web.api_call("chat.delete", json={"channel": self._channel, "ts": message})


class DiscordMessageClient(MessageClient):
    """Client that posts in the prompt's Discord channel.

    Each message is a Discord reply to the previous one, the first one to the prompt.
    """

    size = 2_000

    def __init__(self, client: discord.Client, prompt: MeasuredPrompt) -> None:
        self._place = client.get_partial_messageable(int(prompt.place))
        self._previous_id = int(prompt.message)

    async def post(self, text: str) -> str:
        message = await self._place.send(text, reference=self._place.get_partial_message(self._previous_id))
        self._previous_id = message.id
        return str(message.id)

    async def edit(self, message: str, text: str) -> None:
        await self._place.get_partial_message(int(message)).edit(content=text)

    async def delete(self, message: str) -> None:
        await self._place.get_partial_message(int(message)).delete()


def create_slack_client(platform: SlackCellPlatform, *, retries: int) -> AsyncWebClient:
    """Return a Slack client that repeats rate-limited calls after their `Retry-After`.

    Args:
        retries: the maximum number of repetitions of one call; after that, the call raises `SlackApiError`.
    """
    simulator = platform.simulator
    handlers = [AsyncRateLimitErrorRetryHandler(max_retry_count=retries)]
    return AsyncWebClient(simulator.bot_token, base_url=simulator.api_url, retry_handlers=list(handlers))


@asynccontextmanager
async def open_discord_client(platform: DiscordCellPlatform) -> AsyncIterator[discord.Client]:
    """Yield a logged-in Discord client without a gateway connection.

    It obeys Discord's rate-limit headers. The end of the context closes it. The simulator becomes discord.py's API
    address in the whole process, also afterwards.
    """
    discord.http.Route.BASE = platform.simulator.api_url
    client = discord.Client(intents=discord.Intents.none(), allowed_mentions=discord.AllowedMentions.none())
    await client.login(platform.simulator.bot_token)
    try:
        yield client
    finally:
        await client.close()
