"""Registry of the contenders."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.replies.contenders import nanobot, parley, slack_runner
from benchmarks.replies.contenders.base import Contender, ReplyWriter, RunningContender, StreamingContender
from benchmarks.replies.contenders.platform_clients import (
    DiscordMessageClient,
    SlackMessageClient,
    create_slack_client,
    open_discord_client,
)
from benchmarks.replies.contenders.policies import (
    ChatGptInSlack,
    ChatSdk,
    LastWrite,
    Llmcord,
    OpenClaw,
    StreamingPolicy,
)
from benchmarks.replies.platforms import DiscordPlatform, Question, SlackPlatform

#: Slack: maximum lengths of a `markdown_text`, and of a `text` that can be edited.
MAX_MARKDOWN_CHARS, MAX_TEXT_CHARS = 12_000, 4_000


class _PolicyContender(StreamingContender):
    def __init__(self, make: Callable[[Question], StreamingPolicy]) -> None:
        self._make = make

    def open_reply(self, question: Question) -> AbstractAsyncContextManager[ReplyWriter]:
        return self._make(question)


@asynccontextmanager
async def start_chat_sdk_on_slack(platform: SlackPlatform) -> AsyncIterator[RunningContender]:
    """Start Chat SDK with the default of Slack's Node client: ten retries."""
    web = create_slack_client(platform, retries=10)
    yield _PolicyContender(
        lambda question: ChatSdk(SlackMessageClient(web, question, "markdown_text", MAX_MARKDOWN_CHARS), platform.speed)
    )


@asynccontextmanager
async def start_chat_sdk_on_discord(platform: DiscordPlatform) -> AsyncIterator[RunningContender]:
    async with open_discord_client(platform) as client:
        yield _PolicyContender(lambda question: ChatSdk(DiscordMessageClient(client, question), platform.speed))


@asynccontextmanager
async def start_llmcord(platform: DiscordPlatform) -> AsyncIterator[RunningContender]:
    last_write = LastWrite()
    async with open_discord_client(platform) as client:
        yield _PolicyContender(
            lambda question: Llmcord(DiscordMessageClient(client, question), platform.speed, last_write)
        )


@asynccontextmanager
async def start_chat_gpt_in_slack(platform: SlackPlatform) -> AsyncIterator[RunningContender]:
    """Start ChatGPT-in-Slack with its two retries."""
    web = create_slack_client(platform, retries=2)
    yield _PolicyContender(
        lambda question: ChatGptInSlack(SlackMessageClient(web, question, "text", MAX_TEXT_CHARS), platform.speed)
    )


@asynccontextmanager
async def start_openclaw_on_slack(platform: SlackPlatform) -> AsyncIterator[RunningContender]:
    """Start OpenClaw with its two retries (newer versions: none for writes)."""
    web = create_slack_client(platform, retries=2)
    yield _PolicyContender(
        lambda question: OpenClaw(SlackMessageClient(web, question, "text", MAX_TEXT_CHARS), platform.speed, pause=1.0)
    )


@asynccontextmanager
async def start_openclaw_on_discord(platform: DiscordPlatform) -> AsyncIterator[RunningContender]:
    async with open_discord_client(platform) as client:
        yield _PolicyContender(
            lambda question: OpenClaw(DiscordMessageClient(client, question), platform.speed, pause=1.2)
        )


CONTENDERS = (
    Contender(parley.NAME, "slack", parley.start_on_slack),
    Contender("Chat SDK's policy", "slack", start_chat_sdk_on_slack),
    Contender("ChatGPT-in-Slack's policy", "slack", start_chat_gpt_in_slack),
    Contender("OpenClaw's policy", "slack", start_openclaw_on_slack),
    Contender(slack_runner.NAME, "slack", slack_runner.start_on_slack),
    Contender(parley.NAME, "discord", parley.start_on_discord),
    Contender("Chat SDK's policy", "discord", start_chat_sdk_on_discord),
    Contender("llmcord's policy", "discord", start_llmcord),
    Contender("OpenClaw's policy", "discord", start_openclaw_on_discord),
    Contender(nanobot.NAME, "discord", nanobot.start_on_discord, nanobot.is_measurable),
)
