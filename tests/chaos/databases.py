"""Empty migrated databases for crashing processes."""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.postgres import PostgresSandbox
from tests.chaos.platforms import LendDatabase
from tests.conftest import driven
from tests.fixtures import empty_databases as tables


async def lend_sqlite(folder: Path) -> LendDatabase:
    """Return a provider of SQLite files in the folder of the process.

    Args:
        folder: place of the template file.
    """
    template = folder / "template.db"
    await tables.migrate_database(_sqlite(template))

    @asynccontextmanager
    async def lend(place: Path) -> AsyncIterator[str]:
        shutil.copy(template, place / "parley.db")
        yield _sqlite(place / "parley.db")

    return lend


async def lend_postgres(server: PostgresSandbox) -> LendDatabase:
    """Return a provider of databases on `server`; a returned database is emptied and reused."""
    template, free = f"template_{uuid.uuid4().hex}", list[str]()
    await tables.migrate_database(driven(await asyncio.to_thread(server.create_database, template)))

    @asynccontextmanager
    async def lend(_place: Path) -> AsyncIterator[str]:
        if free:
            url = free.pop()
        else:
            url = driven(
                await asyncio.to_thread(server.create_database, f"chaos_{uuid.uuid4().hex}", template=template)
            )
        yield url
        await tables.empty_database(url)
        free.append(url)

    return lend


async def rehearsal_database(server: PostgresSandbox) -> str:
    """Return the setting of a database for the rehearsal of a fork server."""
    url = await asyncio.to_thread(server.create_database, f"rehearsed_{uuid.uuid4().hex}")
    await tables.migrate_database(driven(url))
    return url


def _sqlite(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"
