"""Databases for processes that die: each with all tables and nothing in them."""

import asyncio
import shutil
import uuid
from pathlib import Path

from core.store.database import Database
from core.store.migrate import migrate
from sandbox.postgres import PostgresSandbox
from tests.chaos.stage import MakeDatabase
from tests.conftest import driven


async def sqlite(folder: Path) -> MakeDatabase:
    """Makes a file in the folder of the process.

    Args:
        folder: for the file that all are copies of.
    """
    template = folder / "template.db"
    await _fill(_sqlite(template))

    async def make(place: Path) -> str:
        shutil.copy(template, place / "parley.db")
        return _sqlite(place / "parley.db")

    return make


async def postgres(server: PostgresSandbox) -> MakeDatabase:
    """Makes databases on `server`."""
    template = f"template_{uuid.uuid4().hex}"
    await _fill(driven(await asyncio.to_thread(server.create, template)))

    async def make(_place: Path) -> str:
        return driven(await asyncio.to_thread(server.create, f"chaos_{uuid.uuid4().hex}", template=template))

    return make


async def _fill(url: str) -> None:
    database = Database(url)
    await migrate(database)
    await database.aclose()


def _sqlite(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"
