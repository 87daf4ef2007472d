"""Upgrades: a worker that is older than its database."""

import signal
from pathlib import Path

import pytest
import sqlalchemy as sa

from chatrig.models import ReceivedRequest
from core.store.database import Database
from tests.acceptance.conftest import StartBot
from tests.acceptance.platforms import Platform
from tests.acceptance.test_restarts import begin_answers

#: Sentence of a worker that finds a revision of a newer version.
NEWER = "the database is at revision ffff, which this version of Parley does not know: run the version that wrote it"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    return str(request.getfixturevalue("postgres"))


async def replace_revision(url: str, revision: str) -> str:
    """Store another Alembic revision in the database, and return the former one."""
    database = Database(url)
    async with database.write() as connection:
        former = await connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        await connection.execute(sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    await database.aclose()
    return str(former)


async def test_an_older_worker_stops_with_a_sentence_and_loses_nothing(start: StartBot, url: str) -> None:
    bot = await start(DATABASE_URL=url, SHUTDOWN_TIMEOUT_SECONDS="1")
    conversations = await begin_answers(bot)
    revision = await replace_revision(url, "ffff")
    try:
        assert await bot.program.wait_for_exit() == 1
        assert bot.program.log.strip().splitlines()[-1].startswith(NEWER)
        await bot.wait_until_disconnected()
        for conversation in conversations.values():
            await conversation.say("missed")
        log_size = len(bot.program.log)
        await bot.program.start()
        assert await bot.program.wait_for_exit() == 1
        assert NEWER in bot.program.log[log_size:]
    finally:
        await replace_revision(url, revision)

    def answer(request: ReceivedRequest) -> str:
        return "Missed no more." if "missed" in request.messages[-1][1] else "All of it."

    async def check_replies(platform: Platform) -> None:
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text == "Missed no more.")
        assert [reply.text for reply in conversations[platform].replies()] == ["All of it.", "Missed no more."]

    bot.answer = answer
    await bot.start()
    await bot.run_on_all_platforms(check_replies)
    assert await bot.program.stop(signal.SIGTERM) == 0
