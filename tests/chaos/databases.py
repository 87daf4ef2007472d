"""Providers of empty migrated databases for crashing processes."""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.runner import DatabaseProvider
from tests.conftest import add_driver
from tests.fixtures import empty_databases
from tests.processes.postgres import PostgresServer


async def create_sqlite_provider(folder: Path) -> DatabaseProvider:
    """Return a provider that copies a migrated SQLite file into each process's folder.

    Args:
        folder: the folder of the template file.
    """
    template = folder / "template.db"
    await empty_databases.migrate_database(_sqlite(template))

    @asynccontextmanager
    async def provide(process_folder: Path) -> AsyncIterator[str]:
        file = process_folder / "parley.db"
        shutil.copy(template, file)
        yield _sqlite(file)

    return provide


async def create_postgres_provider(server: PostgresServer) -> DatabaseProvider:
    """Return a provider of migrated databases on a PostgreSQL server.

    It empties a database after its use, and provides it again.
    """
    template, free_urls = f"template_{uuid.uuid4().hex}", list[str]()
    await empty_databases.migrate_database(add_driver(await asyncio.to_thread(server.create_database, template)))

    @asynccontextmanager
    async def provide(_process_folder: Path) -> AsyncIterator[str]:
        if free_urls:
            url = free_urls.pop()
        else:
            url = add_driver(
                await asyncio.to_thread(server.create_database, f"chaos_{uuid.uuid4().hex}", template=template)
            )
        yield url
        await empty_databases.empty_database(url)
        free_urls.append(url)

    return provide


async def create_warm_up_database(server: PostgresServer) -> str:
    """Return the URL of a new migrated database for the warm-up of a fork server."""
    url = await asyncio.to_thread(server.create_database, f"warm_up_{uuid.uuid4().hex}")
    await empty_databases.migrate_database(add_driver(url))
    return url


def _sqlite(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"
