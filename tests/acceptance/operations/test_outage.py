"""Database outages during turns: users see slower replies, and no message is lost.

`make test ARGS="tests/acceptance/operations/test_outage.py --outage 60"` makes an outage of a minute.
"""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest
import sqlalchemy as sa

from bot.app import SHUTDOWN_GRACE_SECONDS
from chatrig.models import ReceivedRequest, Say
from chatrig.slack import SlackSimulator
from core.store.database import Database
from core.store.schema import inbox, messages, turns
from tests.acceptance.conftest import MakeProgram, StartBot
from tests.acceptance.platforms import Platform, Slack
from tests.acceptance.test_restarts import begin_answers, check_resumption, start_conversations
from tests.processes.postgres import PostgresServer

STORY = " ".join(f"word-{number}" for number in range(200))

#: Seconds until the bot has recovered: it retries failed writes every 30 s at the latest.
RECOVERY_SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)


async def test_a_database_outage_delays_replies_and_loses_none(
    start: StartBot, slack: SlackSimulator, postgres_server: PostgresServer, postgres: str, outage: float
) -> None:
    def answer(request: ReceivedRequest) -> Say:
        question = [text for role, text in request.messages if role == "user"][-1]
        included = [word for word in ("second", "third", "elsewhere") if word in question]
        return Say(f"Heard: {' '.join(included)}") if included else Say(STORY, pieces=100, pace=(outage + 3) / 100)

    bot = await start(DATABASE_URL=postgres)
    bot.answer = answer
    threads = {platform: await platform.start_thread() for platform in bot.platforms}
    elsewhere = start_conversations(bot)

    async def start_story(platform: Platform) -> None:
        await threads[platform].say("tell me a story")
        await bot.wait_for_reply(platform, threads[platform], lambda text: text.startswith("word-0"))
        await threads[platform].say("second")
        await platform.wait_for(lambda: threads[platform].count_reactions() == 1)

    async def send_during_outage(platform: Platform) -> None:
        await threads[platform].say("third", mentions_bot=False)
        await elsewhere[platform].say("elsewhere")
        newest = threads[platform].replies()[-1]
        await bot.wait_for_reply(platform, threads[platform], lambda text: len(text) > len(newest.text))

    async def check_recovery(platform: Platform) -> None:
        def list_replies() -> list[str]:
            replies = [reply.text for reply in threads[platform].replies()]
            answers = " ".join(text.removeprefix("Heard: ") for text in replies[1:]).split()
            return [*replies[:1], *answers]

        await platform.wait_for(lambda: list_replies() == [STORY, "second", "third"], timeout=outage + RECOVERY_SECONDS)
        await platform.wait_for(lambda: [reply.text for reply in elsewhere[platform].replies()] == ["Heard: elsewhere"])
        await platform.wait_for(lambda: threads[platform].count_reactions() == 0)

    await bot.run_on_all_platforms(start_story)
    envelope_count = len(slack.envelopes)
    await asyncio.to_thread(postgres_server.stop)
    until = monotonic() + outage
    try:
        await bot.run_on_all_platforms(send_during_outage)
        await asyncio.sleep(until - monotonic())
        assert not any(envelope.acknowledged_at for envelope in slack.envelopes[envelope_count:])
    finally:
        await asyncio.to_thread(postgres_server.start)
    await bot.run_on_all_platforms(check_recovery)
    async with asyncio.timeout(RECOVERY_SECONDS):
        while "ready again" not in bot.program.log:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.1)
    assert "not ready: the database cannot be used" in bot.program.log
    assert await bot.program.stop(signal.SIGTERM) == 0
    assert await count_outcomes(postgres) == (8, {"done"}, 2)


async def count_outcomes(url: str) -> tuple[int, set[str], int]:
    """Return the number of inbox messages, their turns' states, and the stories.

    The last number is the count of stored messages with the text `STORY`.
    """
    database = Database(url)
    ended = sa.select(turns.c.state).join(inbox, inbox.c.turn == turns.c.id)
    async with database.read() as connection:
        states = (await connection.execute(ended)).scalars().all()
        story_count = (
            await connection.execute(sa.select(sa.func.count()).where(messages.c.content == STORY))
        ).scalar_one()
    await database.aclose()
    return len(states), set(states), story_count


async def test_a_start_waits_for_a_database_that_is_starting(
    program: MakeProgram, slack: SlackSimulator, postgres_server: PostgresServer, postgres: str
) -> None:
    platform = Slack(slack)
    addresses = {"DATABASE_URL": postgres, "MODEL": "openai/m", "OPENAI_BASE_URL": "http://127.0.0.1:1"}
    bot = program({**platform.settings, **addresses})
    await asyncio.to_thread(postgres_server.stop)
    try:
        await bot.start()
        async with asyncio.timeout(60):
            while "retry in" not in bot.log:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.02)
    finally:
        await asyncio.to_thread(postgres_server.start)
    try:
        await platform.wait_for(lambda: platform.is_connected, timeout=60)
        assert await bot.stop() == 0
    finally:
        await bot.aclose()


class DatabaseProxy:
    """TCP proxy between the bot and its PostgreSQL server that can stop all traffic."""

    def __init__(self, url: str) -> None:
        self._server = sa.make_url(url)
        self._flows = asyncio.Event()
        self._flows.set()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[str]:
        """Run the proxy on a free port, and yield the database URL that leads through it."""
        carrying = set[asyncio.Task[None]]()

        async def forward_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(self._server.host, self._server.port)
            for one, other in ((reader, back), (there, writer)):
                carrying.add(asyncio.create_task(self._carry(one, other)))

        async with await asyncio.start_server(forward_connection, "127.0.0.1", 0) as server:
            yield self._server.set(port=server.sockets[0].getsockname()[1]).render_as_string(hide_password=False)
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)

    @asynccontextmanager
    async def swallow_traffic(self) -> AsyncIterator[None]:
        """Stop the traffic of all connections inside the context, without closing them."""
        self._flows.clear()
        yield
        self._flows.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
        writer.close()


@asynccontextmanager
async def lock_file(file: Path) -> AsyncIterator[None]:
    """Lock a SQLite file against all other connections inside the context."""
    with sqlite3.connect(file, isolation_level=None) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


@pytest.fixture(params=["postgres", "sqlite"])
def wire(request: pytest.FixtureRequest) -> DatabaseProxy | None:
    """Return a proxy to the PostgreSQL server; None in a test with a SQLite file."""
    return DatabaseProxy(request.getfixturevalue("postgres")) if request.param == "postgres" else None


async def test_a_hanging_database_does_not_block_shutdown(
    start: StartBot, tmp_path: Path, wire: DatabaseProxy | None
) -> None:
    settings = {"SHUTDOWN_TIMEOUT_SECONDS": "1", "LEASE_SECONDS": "2", "DATA_DIR": str(tmp_path)}
    async with AsyncExitStack() as stack:
        hanging: AbstractAsyncContextManager[None] = lock_file(tmp_path / "parley.db")
        if wire is not None:
            settings["DATABASE_URL"], hanging = await stack.enter_async_context(wire.run()), wire.swallow_traffic()
        bot = await start(**settings)
        conversations = await begin_answers(bot)
        async with hanging:
            until = monotonic() + 1 + SHUTDOWN_GRACE_SECONDS + 15
            ending = asyncio.create_task(bot.program.stop())
            await bot.wait_until_disconnected()
            assert not ending.done(), "the platforms are hung up on, and not by the death of the process"
            assert await ending == 1
            assert monotonic() < until
            assert "not handed back in time, so another worker continues them: the turns" in bot.program.log
            assert bot.program.log.splitlines()[-1].startswith("the shutdown took longer than 9 s")
        await check_resumption(bot, conversations)
