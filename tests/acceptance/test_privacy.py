"""Long session that is summarized, exported and deleted while the bot runs."""

import asyncio
import json
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

from chatrig.models import ReceivedRequest, ScriptedResponse
from tests.acceptance.conftest import ForkedProgram, Program, StartBot
from tests.acceptance.platforms import Platform
from tests.processes.fork_server import ForkServer

#: Words of the first turn, of old turns and of recent turns.
SECRET, OLD, NEW = "falcon", "heron", "otter"

DAY_SECONDS = 86_400.0


def answer_from_memory(request: ReceivedRequest) -> ScriptedResponse:
    """Write a summary if asked for one, or answer if the history contains a secret."""
    history = " ".join(text for _, text in request.messages)
    if "You keep notes" in request.system:
        return f"The code name is {SECRET}." if SECRET in history else "Nothing of note."
    if "which of them" in request.text:
        return " and ".join(label for label, name in (("old", OLD), ("new", NEW)) if name in history) or "None."
    if "which name" not in request.text:
        return "Noted."
    return (
        ("In the summary." if "A summary of the earlier messages" in history else "As it was said.")
        if SECRET in history
        else "?"
    )


async def run_command(bot: Program, fork_server: ForkServer, command: str) -> str:
    """Run an operator command in the bot's folder, and return its output.

    A failed command fails the test.
    """
    program = ForkedProgram(fork_server, bot.folder, bot.settings)
    program.log_file = bot.folder / f"{abs(hash(command))}.log"
    code, output = await program.run_command(command)
    assert code == 0, output
    return output


async def backdate_sessions(file: Path, word: str, *, days: float) -> None:
    """Move all times of the sessions that contain `word` into the past by `days`.

    Waits until these sessions have no active turn.
    """
    times = {"messages": ["created_at"], "inbox": ["sent_at", "accepted_at"], "turns": ["created_at", "finished_at"]}
    with sqlite3.connect(file) as database:
        query = "SELECT DISTINCT session FROM messages WHERE content LIKE ?"
        said_in = [session for (session,) in database.execute(query, (f"%{word}%",))]
        assert said_in
        condition = f"IN ({', '.join('?' for _ in said_in)})"
        running = f"SELECT count(*) FROM turns WHERE finished_at IS NULL AND session {condition}"
        async with asyncio.timeout(60):
            while database.execute(running, said_in).fetchone() != (0,):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.02)
        for table, columns in times.items():
            new = ", ".join(f"{column} = {column} - {days * DAY_SECONDS}" for column in columns)
            database.execute(f"UPDATE {table} SET {new} WHERE session {condition}", said_in)
        database.execute(
            f"UPDATE sessions SET updated_at = updated_at - {days * DAY_SECONDS} WHERE id {condition}", said_in
        )


async def test_a_long_session_is_summarized_exported_and_deleted(
    start: StartBot, fork_server: ForkServer, tmp_path: Path
) -> None:
    bot = await start(HISTORY_MAX_TOKENS="1000", DATA_DIR=str(tmp_path / "data"))
    bot.answer = answer_from_memory
    file = tmp_path / "data" / "parley.db"

    async def scenario(platform: Platform) -> None:
        thread = await platform.start_thread()
        await bot.ask(platform, thread, f"the code name is {SECRET}", "Noted.")
        with sqlite3.connect(file) as database:
            like = "SELECT id FROM sessions WHERE id LIKE ?"
            (session,) = database.execute(like, (f"{platform.name}:%",)).fetchone()
        for number in range(5):
            await bot.ask(platform, thread, f"{number}: {'and so on ' * 80}", "Noted.")
        async with asyncio.timeout(60):
            while not _count_summaries(file, session):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.05)
        await bot.ask(platform, thread, "which name was it?", "In the summary.")
        exported = json.loads(await run_command(bot.program, fork_server, f"export {session} --json"))
        assert [run["kind"] for run in exported["runs"]].count("run") == 7
        assert SECRET in next(run["text"] for run in exported["runs"] if run["kind"] == "summary")
        survey = json.loads(await run_command(bot.program, fork_server, f"forget --session {session} --dry-run --json"))
        assert (survey["sessions"], survey["is_deleted"]) == ([session], False)
        assert "deleted" in await run_command(bot.program, fork_server, f"forget --session {session} --yes")
        await bot.ask(platform, thread, "which name was it?", "?")

    await bot.run_on_all_platforms(scenario)
    active = {platform: platform.start_dm("ada") for platform in bot.platforms}
    inactive = {platform: platform.start_dm("grace") for platform in bot.platforms}

    async def send_old_names(platform: Platform) -> None:
        await bot.ask(platform, active[platform], f"one is {OLD}", "Noted.")
        await bot.ask(platform, inactive[platform], f"one is {OLD}", "Noted.", user="grace")

    async def send_new_name(platform: Platform) -> None:
        await bot.ask(platform, active[platform], f"another one is {NEW}", "Noted.")
        await bot.ask(platform, active[platform], "which of them do you know?", "old and new")

    async def check_deletion(platform: Platform) -> None:
        await bot.ask(platform, active[platform], "which of them do you know now?", "new")
        await bot.ask(platform, inactive[platform], "which of them do you know now?", "None.", user="grace")

    await bot.run_on_all_platforms(send_old_names)
    await backdate_sessions(file, OLD, days=3)
    await bot.run_on_all_platforms(send_new_name)
    yesterday = datetime.fromtimestamp(time.time() - DAY_SECONDS, UTC).date()
    assert "deleted" in await run_command(bot.program, fork_server, f"forget --before {yesterday} --yes")
    await bot.run_on_all_platforms(check_deletion)
    content = b"".join(part.read_bytes() for part in file.parent.glob("parley.db*"))
    assert [name.encode() in content for name in (SECRET, OLD, NEW)] == [False, False, True]


def _count_summaries(file: Path, session: str) -> int:
    with sqlite3.connect(file) as database:
        query = "SELECT count(*) FROM messages WHERE session = ? AND summarized_id IS NOT NULL"
        (count,) = database.execute(query, (session,)).fetchone()
    return int(count)
