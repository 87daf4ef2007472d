"""Benchmark of a turn without its model: `make bench-turns`.

It measures real turns, from `InboxStore.accept` through the worker and ADK to the end of the turn. The model answers
one word, at once or after a fixed time, and API calls succeed at once. PostgreSQL is a local server without fsync.
BENCH_DATABASE ("sqlite", "postgres") selects a database.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from benchmarks.turns import many_workers, one_worker
from benchmarks.turns.report import TurnFigures, table
from core.store.database import Database
from core.store.migrate import migrate
from tests.processes.postgres import PostgresServer

#: Numbers of workers on PostgreSQL, one measurement each.
WORKER_COUNTS = (1, 2, 4)


def measure_sqlite() -> TurnFigures:
    with tempfile.TemporaryDirectory() as folder:
        urls = (f"sqlite+aiosqlite:///{Path(folder) / f'{number}.db'}" for number in count())
        single, idle = asyncio.run(one_worker.measure_single_turns(next(urls)))
        concurrent = asyncio.run(one_worker.measure_concurrent_turns(next(urls)))
        without_agent = asyncio.run(one_worker.measure_concurrent_turns(next(urls), has_agent=False))
        return TurnFigures(
            "SQLite",
            single,
            idle,
            concurrent,
            without_agent,
            [asyncio.run(many_workers.measure_throughput(next(urls), 1))],
        )


def measure_postgres() -> TurnFigures:
    with create_databases() as urls:
        single, idle = asyncio.run(one_worker.measure_single_turns(next(urls)))
        concurrent = asyncio.run(one_worker.measure_concurrent_turns(next(urls)))
        without_agent = asyncio.run(one_worker.measure_concurrent_turns(next(urls), has_agent=False))
        throughputs = [asyncio.run(many_workers.measure_throughput(next(urls), workers)) for workers in WORKER_COUNTS]
        takeover = asyncio.run(many_workers.measure_takeover(next(urls)))
        return TurnFigures(
            "PostgreSQL",
            single,
            idle,
            concurrent,
            without_agent,
            throughputs,
            takeover,
            asyncio.run(many_workers.measure_cancel(next(urls))),
        )


@contextmanager
def create_databases() -> Iterator[Iterator[str]]:
    """Yield an endless iterator of URLs; each step creates a migrated database.

    The databases are on one local PostgreSQL server, which runs until the end of the context. A step runs an event loop
    of its own, so it cannot be made in a coroutine.
    """
    with PostgresServer() as server:

        def create_each() -> Iterator[str]:
            for number in count():
                url = server.create_database(f"bench{number}").replace("postgresql://", "postgresql+asyncpg://")
                asyncio.run(migrate_database(url))
                yield url

        yield create_each()


async def migrate_database(url: str) -> None:
    database = Database(url)
    await migrate(database)
    await database.aclose()


def main() -> None:
    selected = os.environ.get("BENCH_DATABASE", "")
    columns = [
        measure() for name, measure in (("sqlite", measure_sqlite), ("postgres", measure_postgres)) if selected in name
    ]
    print(table(columns))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
