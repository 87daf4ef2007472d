"""The Slack adapter against a Slack on this machine, with the real core behind it and a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from slack_sdk.web.async_client import AsyncWebClient

from channels.answer import Answerer
from channels.channel import Channel
from channels.slack import socket
from channels.slack.channel import SlackChannel, SlackSettings, client
from channels.slack.streams import Streaming
from core.agent import AgentConfig, make_app
from core.inbox import Inbox
from core.models.adapter import ModelAdapter
from core.models.catalog import Endpoints, make_provider
from core.runtime import AgentRuntime
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.tokens import TokenCounter
from core.turns import Turns
from core.worker import Worker
from sandbox.models import ScriptedOpenAI
from sandbox.slack import Message, SlackSandbox


@pytest.fixture
async def slack() -> AsyncIterator[SlackSandbox]:
    async with SlackSandbox() as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut socket is noticed at the next ping."""
    monkeypatch.setattr(socket, "PING_INTERVAL", 0.2)


def settings_of(slack: SlackSandbox, streaming: Streaming = "edit") -> SlackSettings:
    return SlackSettings(slack.bot_token, slack.app_token, slack.api_url, streaming)


@pytest.fixture
def web(slack: SlackSandbox) -> AsyncWebClient:
    return client(settings_of(slack))


class Bot:
    """Everything between Slack and the model, wired as the program wires it."""

    def __init__(self, slack: SlackSandbox, model: ScriptedOpenAI, database: Database) -> None:
        self.slack = slack
        self.model = model
        self.database = database
        self.turns = Turns(database, pauses=(0.01, 0.01))
        self.inbox: Inbox
        self.channel: SlackChannel
        self.answerer: Answerer
        self.worker: Worker

    @property
    def mention(self) -> str:
        return f"<@{self.slack.bot_user_id}>"

    def thread(self, message: Message) -> list[Message]:
        return self.slack.messages(message.channel, thread_ts=message.thread_ts or message.ts)

    def texts(self, message: Message) -> list[str]:
        return [one.text for one in self.thread(message)]

    async def ask(self, user: str, channel: str, text: str, **more: Any) -> Message:
        return await self.slack.say(user, channel, f"{self.mention} {text}", **more)

    async def shows(self, message: Message, predicate: Callable[[list[str]], Any]) -> list[str]:
        """The texts of a message's thread, once they are as wanted."""

        def texts() -> list[str] | None:
            found = self.texts(message)
            return found if predicate(found) else None

        found = await self.slack.wait_for(texts)
        assert found is not None
        return found

    async def rows(self, table: sa.Table) -> list[Any]:
        async with self.database.read() as connection:
            return list((await connection.execute(sa.select(table).order_by(table.c.id))).all())

    async def turn_rows(self) -> list[Any]:
        async with self.database.read() as connection:
            query = sa.select(turns_table).order_by(turns_table.c.created_at)
            return list((await connection.execute(query)).all())

    async def settled(self, count: int) -> list[Any]:
        """The turns, once so many have ended."""
        async with asyncio.timeout(10):
            while True:
                rows = await self.turn_rows()
                if sum(row.finished_at is not None for row in rows) >= count:
                    return rows
                await asyncio.sleep(0.01)

    async def inbox_rows(self) -> list[Any]:
        return await self.rows(inbox_table)


@asynccontextmanager
async def running(
    slack: SlackSandbox,
    tmp_path: Path,
    *script: Any,
    time_limit: float = 30,
    connect: bool = True,
    streaming: Streaming = "edit",
) -> AsyncIterator[Bot]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedOpenAI(script[0] if callable(script[0]) else list(script)))
        database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
        stack.push_async_callback(database.aclose)
        await migrate(database)
        endpoints = Endpoints(openai_api_key="sk-test-key-of-the-sandbox", openai_base_url=model.base_url)
        provider, name = make_provider("openai/scripted", endpoints)
        stack.push_async_callback(provider.aclose)
        sessions = SessionService(database, TokenCounter(tmp_path), agent="parley")
        app = make_app(AgentConfig(name="parley"), model=ModelAdapter(model=name, provider=provider), tools=[])
        runtime = AgentRuntime(app, sessions)
        stack.push_async_callback(runtime.aclose)
        bot, channels = Bot(slack, model, database), dict[str, Channel]()
        bot.answerer = Answerer(runtime, bot.turns, channels, time_limit=time_limit)
        bot.worker = Worker(bot.turns, bot.answerer.answer)
        bot.inbox = Inbox(database, sessions, bot.worker, app=app.name)
        bot.channel = channels[SlackChannel.name] = SlackChannel(settings_of(slack, streaming), bot.inbox)
        work = asyncio.create_task(bot.worker.run())
        if connect:
            await bot.channel.start()
            await slack.wait_connected()
        try:
            yield bot
        finally:
            await bot.channel.stop()
            await bot.worker.stop(5)
            await asyncio.wait_for(work, 5)
