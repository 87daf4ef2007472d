"""Upgrades: dumps of earlier versions with today's code, and workers that are older than their database."""

import asyncio
import signal
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from chatrig.models import ReceivedRequest
from core.store.database import Database
from tests.acceptance.conftest import MakeProgram, StartBot
from tests.acceptance.operations.test_backups import back_up, restore
from tests.acceptance.platforms import Platform
from tests.acceptance.test_restarts import begin_answers
from tests.conftest import add_driver
from tests.data.dumps import VERSIONS, Dump
from tests.data.scenario import check_continuation, prepare_bot, to_setting, wait_for_pending_answers
from tests.processes.postgres import PostgresServer

#: Sentence of a worker that finds a revision of a newer version.
NEWER = "the database is at revision ffff, which this version of Parley does not know: run the version that wrote it"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    return str(request.getfixturevalue("postgres"))


async def load_dump(version: str, url: str, server: PostgresServer) -> tuple[Dump, str]:
    """Load the dump of a version, and return it and the URL of its database.

    Args:
        url: the URL of a SQLite file that does not exist, or of any database of the PostgreSQL `server`.
    """
    dump = Dump(version, "sqlite" if url.startswith("sqlite") else "postgresql")
    if dump.dialect == "postgresql":
        url = add_driver(await asyncio.to_thread(server.create_database, f"dump_{uuid4().hex}"))
    await dump.load(url)
    return dump, url


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_bot_goes_on_from_the_database_of_an_earlier_version(
    version: str, url: str, program: MakeProgram, postgres_server: PostgresServer
) -> None:
    dump, url = await load_dump(version, url, postgres_server)
    async with prepare_bot(url, program, dump.platforms) as bot:
        code, log = await bot.program.run_command("migrate")
        assert code == 0, log
        await bot.start()
        await check_continuation(bot)
        assert await bot.program.stop() == 0


async def test_a_rollback_restores_the_backup_of_before_the_migration(
    url: str, program: MakeProgram, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    dump, url = await load_dump(VERSIONS[-1], url, postgres_server)
    backup = tmp_path / "backup"
    async with prepare_bot(url, program, dump.platforms) as bot:
        await asyncio.to_thread(back_up, to_setting(url), backup, postgres_server)
        await replace_revision(url, "ffff")  # by the migration of a newer version
        code, log = await bot.program.run_command("run")
        assert (code, NEWER in log) == (1, True)
        restored_url = await asyncio.to_thread(restore, to_setting(url), backup, postgres_server)
        bot.program.settings = {**bot.program.settings, "DATABASE_URL": restored_url, "BACKFILL_HOURS": "0"}
        code, log = await bot.program.run_command("migrate")
        assert code == 0, log
        code, log = await bot.program.run_command("turns --state running --json")
        assert (code, log.count('"state": "running"')) == (0, len(bot.platforms))
        await bot.start()
        await bot.run_on_all_platforms(wait_for_pending_answers)
        assert await bot.program.stop() == 0


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
