"""Registry of the contenders."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.replies.contenders import nanobot, parley, slack_runner
from benchmarks.replies.contenders.base import Answering, Contender, Writer, Writing
from benchmarks.replies.contenders.platform_clients import DiscordDesk, SlackDesk, discord_client, slack_client
from benchmarks.replies.contenders.policies import ChatGptInSlack, ChatSdk, Llmcord, OpenClaw, Policy, Turnstile
from benchmarks.replies.platforms import DiscordStage, Question, SlackStage

#: Slack: maximum lengths of a `markdown_text`, and of a `text` that can be edited.
MARKDOWN, TEXT = 12_000, 4_000


class _Policies(Writing):
    def __init__(self, make: Callable[[Question], Policy]) -> None:
        self._make = make

    def write(self, question: Question) -> AbstractAsyncContextManager[Writer]:
        return self._make(question)


@asynccontextmanager
async def chat_sdk_on_slack(stage: SlackStage) -> AsyncIterator[Answering]:
    """Start Chat SDK with the default of Slack's Node client: ten retries."""
    web = slack_client(stage, retries=10)
    yield _Policies(lambda question: ChatSdk(SlackDesk(web, question, "markdown_text", MARKDOWN), stage.speed))


@asynccontextmanager
async def chat_sdk_on_discord(stage: DiscordStage) -> AsyncIterator[Answering]:
    async with discord_client(stage) as client:
        yield _Policies(lambda question: ChatSdk(DiscordDesk(client, question), stage.speed))


@asynccontextmanager
async def llmcord(stage: DiscordStage) -> AsyncIterator[Answering]:
    turnstile = Turnstile()
    async with discord_client(stage) as client:
        yield _Policies(lambda question: Llmcord(DiscordDesk(client, question), stage.speed, turnstile))


@asynccontextmanager
async def chat_gpt_in_slack(stage: SlackStage) -> AsyncIterator[Answering]:
    """Start ChatGPT-in-Slack with its two retries."""
    web = slack_client(stage, retries=2)
    yield _Policies(lambda question: ChatGptInSlack(SlackDesk(web, question, "text", TEXT), stage.speed))


@asynccontextmanager
async def openclaw_on_slack(stage: SlackStage) -> AsyncIterator[Answering]:
    """Start OpenClaw with its two retries (newer versions: none for writes)."""
    web = slack_client(stage, retries=2)
    yield _Policies(lambda question: OpenClaw(SlackDesk(web, question, "text", TEXT), stage.speed, pause=1.0))


@asynccontextmanager
async def openclaw_on_discord(stage: DiscordStage) -> AsyncIterator[Answering]:
    async with discord_client(stage) as client:
        yield _Policies(lambda question: OpenClaw(DiscordDesk(client, question), stage.speed, pause=1.2))


CONTENDERS = (
    Contender(parley.NAME, "slack", parley.on_slack),
    Contender("Chat SDK's policy", "slack", chat_sdk_on_slack),
    Contender("ChatGPT-in-Slack's policy", "slack", chat_gpt_in_slack),
    Contender("OpenClaw's policy", "slack", openclaw_on_slack),
    Contender(slack_runner.NAME, "slack", slack_runner.on_slack),
    Contender(parley.NAME, "discord", parley.on_discord),
    Contender("Chat SDK's policy", "discord", chat_sdk_on_discord),
    Contender("llmcord's policy", "discord", llmcord),
    Contender("OpenClaw's policy", "discord", openclaw_on_discord),
    Contender(nanobot.NAME, "discord", nanobot.on_discord, nanobot.fits),
)
