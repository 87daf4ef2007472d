"""Parley: from the model's deltas through the reply and the pacer to the platform's real client."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks.replies.contender import Writer, Writing
from benchmarks.replies.stage import DiscordStage, Question, SlackStage
from channels.buttons import EXTRAS, growing, under_answer
from channels.channel import Surface
from channels.discord.api import DiscordApi
from channels.discord.login import make_client
from channels.discord.settings import DiscordSettings
from channels.discord.surface import DiscordSurface
from channels.receipts import Receipts
from channels.reply import Reply
from channels.slack.api import SlackApi
from channels.slack.login import client
from channels.slack.settings import SlackSettings
from channels.slack.streams import LIFETIME, Streams, StreamSurface
from channels.words import ENGLISH

NAME = "Parley"


async def keep(ids: Sequence[str]) -> None:
    """The ids are not stored here: the bench is about what is shown."""


class Buttoned:
    """A reply that ends with the buttons that the bot puts under it."""

    def __init__(self, reply: Reply, name: str) -> None:
        self._reply = reply
        self._buttons = under_answer(name, ENGLISH, EXTRAS)
        self.feed = reply.feed

    async def close(self, text: str) -> None:
        await self._reply.close(text, controls=self._buttons)


@asynccontextmanager
async def written(surface: Surface, question: Question) -> AsyncIterator[Writer]:
    """A reply as the bot shows it."""
    name = str(question.number)
    async with Reply(surface, keep=keep, controls=growing(name, ENGLISH)) as reply:
        yield Buttoned(reply, name)


async def no_sign(address: Mapping[str, Any]) -> None:
    """No message waits for its turn here."""


class _OnSlack(Writing):
    def __init__(self, stage: SlackStage, api: SlackApi) -> None:
        sandbox = stage.sandbox
        self._asker = {"team": sandbox.team_id, "user": sandbox.people["ada"].id, "user_team": sandbox.team_id}
        self._bot = sandbox.bot_user_id
        self._api = api
        self._streams = Streams(lifetime=LIFETIME / stage.speed)
        self._receipts = Receipts(no_sign, no_sign)

    def write(self, question: Question) -> AbstractAsyncContextManager[Writer]:
        address = {
            **self._asker,
            "bot": self._bot,
            "channel": question.place,
            "thread_ts": question.message,
            "ts": question.message,
        }
        surface = StreamSurface(self._api, self._receipts, address, f"turn {question.number}", self._streams)
        return written(surface, question)


class _OnDiscord(Writing):
    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._receipts = Receipts(no_sign, no_sign)

    def write(self, question: Question) -> AbstractAsyncContextManager[Writer]:
        address = {"channel": question.place, "message": question.message}
        surface = DiscordSurface(self._api, self._receipts, address)
        return written(surface, question)


@asynccontextmanager
async def on_slack(stage: SlackStage) -> AsyncIterator[Writing]:
    sandbox = stage.sandbox
    web = client(SlackSettings(sandbox.bot_token, sandbox.app_token, sandbox.api_url))
    yield _OnSlack(stage, SlackApi(web, speed=stage.speed))


@asynccontextmanager
async def on_discord(stage: DiscordStage) -> AsyncIterator[Writing]:
    bot = make_client(DiscordSettings(bot_token=stage.sandbox.bot_token, api_url=stage.sandbox.api_url))
    api = DiscordApi(bot, speed=stage.speed)
    await bot.login(stage.sandbox.bot_token)
    try:
        yield _OnDiscord(api)
    finally:
        await bot.close()
