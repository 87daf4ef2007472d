"""Databases for processes that die: each with all tables and nothing in them."""

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


async def sqlite(folder: Path) -> LendDatabase:
    """Each is a file in the folder of the process.

    Args:
        folder: for the file that all are copies of.
    """
    template = folder / "template.db"
    await tables.migrated(_sqlite(template))

    @asynccontextmanager
    async def lend(place: Path) -> AsyncIterator[str]:
        shutil.copy(template, place / "parley.db")
        yield _sqlite(place / "parley.db")

    return lend


async def postgres(server: PostgresSandbox) -> LendDatabase:
    """They are on `server`; what is given back is emptied and lent again."""
    template, free = f"template_{uuid.uuid4().hex}", list[str]()
    await tables.migrated(driven(await asyncio.to_thread(server.create, template)))

    @asynccontextmanager
    async def lend(_place: Path) -> AsyncIterator[str]:
        if free:
            url = free.pop()
        else:
            url = driven(await asyncio.to_thread(server.create, f"chaos_{uuid.uuid4().hex}", template=template))
        yield url
        await tables.empty(url)
        free.append(url)

    return lend


async def rehearsed(server: PostgresSandbox) -> str:
    """One for a zygote, as a setting."""
    url = await asyncio.to_thread(server.create, f"rehearsed_{uuid.uuid4().hex}")
    await tables.migrated(driven(url))
    return url


def _sqlite(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"
