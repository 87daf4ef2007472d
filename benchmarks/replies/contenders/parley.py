"""Parley: from the model's deltas through the reply and the rate limiters to the platform's real client."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.replies.contenders.base import Writer, Writing
from benchmarks.replies.platforms import DiscordStage, Question, SlackStage
from channels.base import Surface
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import make_client
from channels.discord.replies import reactions as discord_signs
from channels.discord.replies.surface import DiscordSurface
from channels.discord.settings import DiscordSettings
from channels.i18n.messages import ENGLISH
from channels.replies.buttons import answer_buttons, growing_buttons
from channels.replies.reply import Reply
from channels.settings import EXTRA_BUTTONS
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import make_session, make_web_client
from channels.slack.replies import reactions as slack_signs
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.streaming import STREAM_SECONDS, StreamPolicy, StreamSurface
from channels.slack.settings import SlackSettings

NAME = "Parley"

#: Limit of background calls at the end, in seconds.
SETTLE = 2.0


async def keep(ids: Sequence[str]) -> None:
    """Ignore the ids: the benchmark measures visible text only."""


class Buttoned:
    """Reply that ends with the bot's buttons."""

    def __init__(self, reply: Reply, name: str) -> None:
        self._reply = reply
        self._buttons = answer_buttons(name, ENGLISH, EXTRA_BUTTONS)
        self.feed = reply.feed

    async def close(self, text: str) -> None:
        await self._reply.close(text, buttons=self._buttons)


@asynccontextmanager
async def written(surface: Surface, question: Question) -> AsyncIterator[Writer]:
    """Return a reply like the bot's."""
    name = str(question.number)
    async with Reply(surface, save_ids=keep, buttons=growing_buttons(name, ENGLISH)) as reply:
        yield Buttoned(reply, name)


class _OnSlack(Writing):
    def __init__(self, stage: SlackStage, api: SlackApi) -> None:
        sandbox = stage.sandbox
        self._asker = {"team": sandbox.team_id, "user": sandbox.people["ada"].id, "user_team": sandbox.team_id}
        self._bot = sandbox.bot_user_id
        self._api = api
        self._streams = StreamPolicy(seconds=STREAM_SECONDS / stage.speed)
        self._receipts = slack_signs.make_receipts(api)
        self._assistant = AssistantThreads(api)

    async def settle(self) -> None:
        """Wait for background calls: they count as well."""
        await self._receipts.drain(SETTLE)
        await self._assistant.settle(SETTLE)

    def write(self, question: Question) -> AbstractAsyncContextManager[Writer]:
        address = {
            **self._asker,
            "bot": self._bot,
            "channel": question.place,
            "thread_ts": question.message,
            "ts": question.message,
        }
        turn = f"turn {question.number}"
        surface = StreamSurface(self._api, self._receipts, address, turn, self._streams, assistant=self._assistant)
        return written(surface, question)


class _OnDiscord(Writing):
    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._receipts = discord_signs.make_queued_reactions(api)

    async def settle(self) -> None:
        """See `_OnSlack`."""
        await self._receipts.drain(SETTLE)

    def write(self, question: Question) -> AbstractAsyncContextManager[Writer]:
        address = {"channel": question.place, "message": question.message}
        surface = DiscordSurface(self._api, self._receipts, address)
        return written(surface, question)


@asynccontextmanager
async def on_slack(stage: SlackStage) -> AsyncIterator[Writing]:
    sandbox = stage.sandbox
    web = make_web_client(SlackSettings(sandbox.bot_token, sandbox.app_token, sandbox.api_url))
    async with make_session() as web.session:
        writing = _OnSlack(stage, SlackApi(web, speed=stage.speed))
        yield writing
        await writing.settle()


@asynccontextmanager
async def on_discord(stage: DiscordStage) -> AsyncIterator[Writing]:
    bot = make_client(DiscordSettings(bot_token=stage.sandbox.bot_token, api_url=stage.sandbox.api_url))
    api = DiscordApi(bot, speed=stage.speed)
    await bot.login(stage.sandbox.bot_token)
    try:
        writing = _OnDiscord(api)
        yield writing
        await writing.settle()
    finally:
        await bot.close()
