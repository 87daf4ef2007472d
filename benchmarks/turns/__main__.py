"""Cost of a turn without its model: `make bench-turns`.

BENCH_DATABASE ("sqlite", "postgres") selects a database.

The turns are real, from `InboxStore.accept` through the worker and ADK to the end of the turn. The model answers one
word at once, and API calls succeed at once. PostgreSQL is a local server without fsync.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from benchmarks.turns import many_workers as several
from benchmarks.turns import one_worker as alone
from benchmarks.turns.report import Figures, table
from core.store.database import Database
from core.store.migrate import migrate
from sandbox.postgres import PostgresSandbox

#: Numbers of workers on PostgreSQL, one measurement each.
WORKERS = (1, 2, 4)


def on_sqlite() -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        urls = (f"sqlite+aiosqlite:///{Path(folder) / f'{number}.db'}" for number in count())
        steps, idle = asyncio.run(alone.one_at_a_time(next(urls)))
        together = asyncio.run(alone.all_at_once(next(urls)))
        bare = asyncio.run(alone.all_at_once(next(urls), is_bare=True))
        return Figures("SQLite", steps, idle, together, bare, [asyncio.run(several.pace(next(urls), 1))])


def on_postgres() -> Figures:
    with databases() as urls:
        steps, idle = asyncio.run(alone.one_at_a_time(next(urls)))
        together = asyncio.run(alone.all_at_once(next(urls)))
        bare = asyncio.run(alone.all_at_once(next(urls), is_bare=True))
        paces = [asyncio.run(several.pace(next(urls), workers)) for workers in WORKERS]
        takeover = asyncio.run(several.takeover(next(urls)))
        return Figures(
            "PostgreSQL", steps, idle, together, bare, paces, takeover, asyncio.run(several.cancel(next(urls)))
        )


@contextmanager
def databases() -> Iterator[Iterator[str]]:
    """Provide URLs of empty migrated databases."""
    with PostgresSandbox() as server:

        def made() -> Iterator[str]:
            for number in count():
                url = server.create_database(f"bench{number}").replace("postgresql://", "postgresql+asyncpg://")
                asyncio.run(migrated(url))
                yield url

        yield made()


async def migrated(url: str) -> None:
    database = Database(url)
    await migrate(database)
    await database.aclose()


def main() -> None:
    wanted = os.environ.get("BENCH_DATABASE", "")
    columns = [measure() for name, measure in (("sqlite", on_sqlite), ("postgres", on_postgres)) if wanted in name]
    print(table(columns))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
