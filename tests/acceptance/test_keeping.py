"""A long conversation is known to its end, taken along, and deleted while the bot runs, on both platforms."""

import asyncio
import json
import sqlite3
from pathlib import Path

from sandbox.models import Asked, Turn
from tests.acceptance.conftest import Forked, Program, Start
from tests.acceptance.platforms import Platform
from tests.zygote import Zygote

#: What is said in the first turn.
SECRET = "falcon"


def memory(asked: Asked) -> Turn:
    """A model that sums up what it is told, and says whether it knows."""
    said = " ".join(text for _, text in asked.messages)
    if "You keep the memory" in asked.system:
        return f"The code name is {SECRET}." if SECRET in said else "Nothing of note."
    if "which name" not in asked.text:
        return "Noted."
    return ("In the summary." if "A summary of what was said" in said else "As it was said.") if SECRET in said else "?"


async def parley(beside: Program, zygote: Zygote, command: str) -> str:
    """What a command prints, given beside the bot that runs."""
    program = Forked(zygote, beside.folder, beside.settings)
    program.logs = beside.folder / f"{abs(hash(command))}.log"
    code, said = await program.finish(command)
    assert code == 0, said
    return said


async def test_the_first_words_are_known_at_the_end_and_gone_when_they_are_deleted(
    start: Start, zygote: Zygote, tmp_path: Path
) -> None:
    bot = await start(HISTORY_TOKENS="1000", DATA_DIR=str(tmp_path / "data"))
    bot.answer = memory
    file = tmp_path / "data" / "parley.db"

    async def scenario(platform: Platform) -> None:
        thread = await platform.thread()
        await bot.ask(platform, thread, f"the code name is {SECRET}", "Noted.")
        with sqlite3.connect(file) as database:
            like = "SELECT id FROM sessions WHERE id LIKE ?"
            (session,) = database.execute(like, (f"{platform.name}:%",)).fetchone()
        for number in range(5):
            await bot.ask(platform, thread, f"{number}: {'and so on ' * 80}", "Noted.")
        async with asyncio.timeout(30):
            while not _summaries(file, session):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.05)
        await bot.ask(platform, thread, "which name was it?", "In the summary.")
        exported = json.loads(await parley(bot.program, zygote, f"export {session} --json"))
        assert [run["kind"] for run in exported["runs"]].count("run") == 7
        assert SECRET in next(run["text"] for run in exported["runs"] if run["kind"] == "summary")
        survey = json.loads(await parley(bot.program, zygote, f"forget --session {session} --dry-run --json"))
        assert (survey["whole"], survey["is_deleted"]) == ([session], False)
        assert "deleted" in await parley(bot.program, zygote, f"forget --session {session} --yes")
        await bot.ask(platform, thread, "which name was it?", "?")

    await bot.everywhere(scenario)
    for kept in file.parent.glob("parley.db*"):
        assert SECRET.encode() not in kept.read_bytes()


def _summaries(file: Path, session: str) -> int:
    with sqlite3.connect(file) as database:
        query = "SELECT count(*) FROM messages WHERE session = ? AND covers IS NOT NULL"
        (count,) = database.execute(query, (session,)).fetchone()
    return int(count)
