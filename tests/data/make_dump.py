"""Make the dumps of the present version: `python -m tests.data.make_dump v0.1.0`.

The bot runs with each database against the simulators, `tests.data.scenario` fills the database, and the bot is killed.
Run it once for each release, and never again for a released version.
"""

import asyncio
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from core.store.database import Database
from core.store.migrate import migrate
from tests.acceptance.conftest import Program
from tests.conftest import add_driver
from tests.data import scenario
from tests.data.dumps import FOLDER, Dialect, Dump, dump_postgres, dump_sqlite
from tests.processes.postgres import PostgresServer


async def fill_database(url: str, folder: Path) -> dict[str, object]:
    """Fill the database at `url`, and kill the bot; return the platforms' states.

    Args:
        url: the URL with the driver.
        folder: an empty folder for the bot.
    """
    database = Database(url)
    try:
        await migrate(database)
        async with scenario.prepare_bot(url, partial(Program, folder)) as bot:
            await bot.start()
            await scenario.run_until_killed(bot, database)
            states = {platform.name: platform.simulator.save_state() for platform in bot.platforms}
            return {"made_at": time.time(), **states}
    finally:
        await database.aclose()


def main(version: str) -> None:
    (FOLDER / version).mkdir(exist_ok=True)
    dialects: tuple[Dialect, ...] = ("sqlite", "postgresql")
    with PostgresServer() as server:
        for dialect in dialects:
            with tempfile.TemporaryDirectory() as name:
                dump, folder = Dump(version, dialect), Path(name)
                file = folder / "parley.db"
                postgres = server.create_database("dump") if dialect == "postgresql" else ""
                url = add_driver(postgres) if postgres else f"sqlite+aiosqlite:///{file}"
                states = asyncio.run(fill_database(url, folder))
                dump.platforms_file.write_text(json.dumps(states, indent=1, ensure_ascii=False) + "\n")
                dump.sql_file.write_text(dump_postgres(postgres, server) if postgres else dump_sqlite(file))


if __name__ == "__main__":
    main(sys.argv[1])
