"""Database access for commands, also while the bot runs.

These functions never create or migrate the database.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from bot import settings as configuration
from bot.monitoring import logs
from core.errors import StoreError
from core.store.database import Database
from core.store.migrate import verify_schema

T = TypeVar("T")


def run_with_database(work: Callable[[Database, configuration.Settings], Awaitable[T]]) -> T:
    """Run `work` with the configured database and the settings, and return its result.

    `work` runs in a new event loop. Only errors are logged.

    Raises:
        SettingsError: a setting is wrong, such as a price file that `work` reads.
        StoreError: the database does not exist, has another schema version, or cannot be used.
    """
    settings = configuration.load_settings()
    logs.configure_logging("ERROR")

    async def main() -> T:
        async with open_database(settings) as database:
            return await work(database, settings)

    return asyncio.run(main())


@asynccontextmanager
async def open_database(settings: configuration.Settings) -> AsyncIterator[Database]:
    """Open the configured database, and close it at the end of the block.

    Raises:
        StoreError: the database does not exist, has another schema version, or cannot be used.
    """
    database = Database(settings.database_address, connections=3)
    try:
        if database.file is not None and not database.file.exists():
            simulator = settings.data_dir / "simulator.db"
            hint = f"; the simulator's is DATABASE_URL=sqlite:///{simulator}" if simulator.exists() else ""
            raise StoreError(f"{database.file}: no such database yet: run `parley run`, or set DATABASE_URL{hint}")
        await verify_schema(database)
        yield database
    finally:
        await database.aclose()
