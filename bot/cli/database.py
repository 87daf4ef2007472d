"""The database as commands find it: nothing of it is made or migrated, and whether the bot runs is all the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from bot import settings as configuration
from bot.monitoring import logs
from core.errors import StoreError
from core.store.database import Database
from core.store.migrate import verify

T = TypeVar("T")


def done(work: Callable[[Database, configuration.Settings], Awaitable[T]]) -> T:
    """What `work` gives, done on the database that the settings name.

    Raises:
        SettingsError: one of them is wrong.
        StoreError: the database is not there, or of another version.
    """
    settings = configuration.load_settings()
    logs.configure("ERROR")

    async def main() -> T:
        async with opened(settings) as database:
            return await work(database, settings)

    return asyncio.run(main())


@asynccontextmanager
async def opened(settings: configuration.Settings) -> AsyncIterator[Database]:
    """Open the database that the settings name.

    Raises:
        StoreError: it is not there, or of another version.
    """
    database = Database(settings.database_address, connections=3)
    try:
        if database.file is not None and not database.file.exists():
            sandbox = settings.data_dir / "sandbox.db"
            hint = f"; the sandbox's is DATABASE_URL=sqlite:///{sandbox}" if sandbox.exists() else ""
            raise StoreError(
                f"{database.file}: there is no database yet; `parley run` makes it, or set DATABASE_URL{hint}"
            )
        await verify(database)
        yield database
    finally:
        await database.aclose()
