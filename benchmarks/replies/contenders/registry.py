"""Registry of all contenders of the benchmark, and their start functions."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.replies.contenders import nanobot, parley, slack_runner
from benchmarks.replies.contenders.base import ReplyContender, ReplyWriter, RunningContender, StreamingContender
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
from benchmarks.replies.platforms import DiscordCellPlatform, MeasuredPrompt, SlackCellPlatform

#: Slack: maximum lengths of a `markdown_text`, and of a `text` that can be edited.
MAX_MARKDOWN_CHARS, MAX_TEXT_CHARS = 12_000, 4_000


class _PolicyContender(StreamingContender):
    """Running contender that writes replies by a copy of one bot's streaming policy.

    Args:
        create_policy: returns the reply writer of a prompt.
    """

    def __init__(self, create_policy: Callable[[MeasuredPrompt], StreamingPolicy]) -> None:
        self._create_policy = create_policy

    def open_reply(self, prompt: MeasuredPrompt) -> AbstractAsyncContextManager[ReplyWriter]:
        return self._create_policy(prompt)


@asynccontextmanager
async def start_chat_sdk_on_slack(platform: SlackCellPlatform) -> AsyncIterator[RunningContender]:
    """Yield a contender that follows the Chat SDK's policy on Slack.

    A rate-limited call is retried up to ten times, as by Slack's Node client.
    """
    web = create_slack_client(platform, retries=10)
    yield _PolicyContender(
        lambda prompt: ChatSdk(SlackMessageClient(web, prompt, "markdown_text", MAX_MARKDOWN_CHARS), platform.speed)
    )


@asynccontextmanager
async def start_chat_sdk_on_discord(platform: DiscordCellPlatform) -> AsyncIterator[RunningContender]:
    async with open_discord_client(platform) as client:
        yield _PolicyContender(lambda prompt: ChatSdk(DiscordMessageClient(client, prompt), platform.speed))


@asynccontextmanager
async def start_llmcord(platform: DiscordCellPlatform) -> AsyncIterator[RunningContender]:
    last_write = LastWrite()
    async with open_discord_client(platform) as client:
        yield _PolicyContender(lambda prompt: Llmcord(DiscordMessageClient(client, prompt), platform.speed, last_write))


@asynccontextmanager
async def start_chat_gpt_in_slack(platform: SlackCellPlatform) -> AsyncIterator[RunningContender]:
    """Yield a contender that follows ChatGPT-in-Slack's policy on Slack.

    A rate-limited call is retried up to twice, as by ChatGPT-in-Slack.
    """
    web = create_slack_client(platform, retries=2)
    yield _PolicyContender(
        lambda prompt: ChatGptInSlack(SlackMessageClient(web, prompt, "text", MAX_TEXT_CHARS), platform.speed)
    )


@asynccontextmanager
async def start_openclaw_on_slack(platform: SlackCellPlatform) -> AsyncIterator[RunningContender]:
    """Yield a contender that follows OpenClaw's policy on Slack.

    A rate-limited call is retried up to twice, as by OpenClaw; its newer versions do not retry writes.
    """
    web = create_slack_client(platform, retries=2)
    yield _PolicyContender(
        lambda prompt: OpenClaw(SlackMessageClient(web, prompt, "text", MAX_TEXT_CHARS), platform.speed, pause=1.0)
    )


@asynccontextmanager
async def start_openclaw_on_discord(platform: DiscordCellPlatform) -> AsyncIterator[RunningContender]:
    async with open_discord_client(platform) as client:
        yield _PolicyContender(lambda prompt: OpenClaw(DiscordMessageClient(client, prompt), platform.speed, pause=1.2))


CONTENDERS = (
    ReplyContender(parley.NAME, "slack", parley.start_on_slack),
    ReplyContender("Chat SDK's policy", "slack", start_chat_sdk_on_slack),
    ReplyContender("ChatGPT-in-Slack's policy", "slack", start_chat_gpt_in_slack),
    ReplyContender("OpenClaw's policy", "slack", start_openclaw_on_slack),
    ReplyContender(slack_runner.NAME, "slack", slack_runner.start_on_slack),
    ReplyContender(parley.NAME, "discord", parley.start_on_discord),
    ReplyContender("Chat SDK's policy", "discord", start_chat_sdk_on_discord),
    ReplyContender("llmcord's policy", "discord", start_llmcord),
    ReplyContender("OpenClaw's policy", "discord", start_openclaw_on_discord),
    ReplyContender(nanobot.NAME, "discord", nanobot.start_on_discord, nanobot.is_measurable),
)
