"""Backups during turns, and bots that start from them.

The steps are those of docs/howto/back-up-and-restore.md.
"""

import asyncio
import signal
import sqlite3
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from chatrig.models import Pause, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.conftest import StartBot
from tests.acceptance.platforms import Platform
from tests.acceptance.test_restarts import start_conversations
from tests.processes.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'parley.db'}"
    return str(request.getfixturevalue("postgres")).replace("+asyncpg", "")


def back_up(url: str, copy: Path, server: PostgresServer) -> None:
    """Write a backup of a running bot's database into the file `copy`.

    SQLite: `VACUUM INTO`; PostgreSQL: `pg_dump`.
    """
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            database.execute(f"VACUUM INTO '{copy}'")
    else:
        command: list[str | Path] = [server.bin_folder / "pg_dump", "--format=custom", f"--file={copy}", url]
        subprocess.run(command, check=True)


def restore(url: str, copy: Path, server: PostgresServer) -> str:
    """Restore the backup in the file `copy` as a new database, and return its URL."""
    if url.startswith("sqlite"):
        return f"sqlite:///{copy}"
    restored_url = server.create_database(f"restored_{uuid4().hex}")
    command: list[str | Path] = [
        server.bin_folder / "pg_restore",
        "--no-owner",
        "--exit-on-error",
        f"--dbname={restored_url}",
        copy,
    ]
    subprocess.run(command, check=True)
    return restored_url


async def test_a_restored_backup_resumes_active_turns_in_the_same_reply(
    url: str, start: StartBot, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    go_on, copy = asyncio.Event(), tmp_path / "backup.db"
    questions: list[str] = []

    def answer(question: ReceivedRequest) -> ScriptedResponse:
        word = question.text.split()[-1]
        questions.append(word)
        return [Say("Begun."), Pause(go_on), Say(" Ended.")] if word == "two" else f"Answer: {word}"

    bot = await start(DATABASE_URL=url)
    bot.answer = answer
    conversations = start_conversations(bot)

    async def start_turns(platform: Platform) -> None:
        await bot.ask(platform, conversations[platform], "say one", "Answer: one")
        await conversations[platform].say("say two")
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text.startswith("Begun."))

    async def check_answers(platform: Platform) -> None:
        await bot.wait_for_reply(platform, conversations[platform], lambda text: text == "Begun. Ended.")
        await bot.ask(platform, conversations[platform], "say three", "Answer: three")

    async def check_restored_bot(platform: Platform) -> None:
        await bot.ask(platform, conversations[platform], "say four", "Answer: four")
        texts = [reply.text for reply in conversations[platform].replies()]
        assert texts == ["Answer: one", "Begun. Ended.", "Answer: three", "Answer: four"]

    await bot.run_on_all_platforms(start_turns)
    await asyncio.to_thread(back_up, url, copy, postgres_server)
    go_on.set()
    await bot.run_on_all_platforms(check_answers)
    assert await bot.program.stop(signal.SIGTERM) == 0
    restored_url = await asyncio.to_thread(restore, url, copy, postgres_server)
    bot.program.settings = {**bot.program.settings, "DATABASE_URL": restored_url, "BACKFILL_HOURS": "0"}
    await bot.start()
    await bot.run_on_all_platforms(check_restored_bot)
    assert sorted(questions) == sorted(2 * ["one", "two", "two", "three", "four"])
