"""Database access for commands, also while the bot runs.

These functions never create or migrate the database.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from sqlalchemy.engine import make_url

from bot import settings as configuration
from bot.monitoring import logs
from core.errors import StoreError
from core.privacy.known_users import KnownUser, find_users
from core.store.database import Database, find_sqlite_file
from core.store.migrate import verify_schema

T = TypeVar("T")


def run_with_database(work: Callable[[Database, configuration.Settings], Awaitable[T]]) -> T:
    """Run `work` with the configured database in a new event loop; only errors are logged."""
    settings = configuration.load_settings()
    logs.configure_logging("ERROR")

    async def main() -> T:
        async with open_database(settings) as database:
            return await work(database, settings)

    return asyncio.run(main())


def describe_users(users: Sequence[KnownUser]) -> str:
    """Return the end of a message about an unknown user id: the users with such a name."""
    lines = (f"\n  {user.id}  {', '.join(user.names)}" for user in users)
    return f". --user takes an id, and these users have such a name:{''.join(lines)}" if users else ""


async def verify_user(database: Database, user: str) -> None:
    """Raise a `StoreError`, with the users of such a name, if nothing is stored of a user."""
    async with database.read() as connection:
        users = await find_users(connection, user)
    if user not in (known.id for known in users):
        raise StoreError(f"nothing is stored of a user with the id {user}{describe_users(users)}")


@asynccontextmanager
async def open_database(settings: configuration.Settings) -> AsyncIterator[Database]:
    """Open the configured database for the block.

    Raises:
        StoreError: the database does not exist, has another schema version, or cannot be used.
    """
    file = find_sqlite_file(make_url(settings.database_address))
    if file is not None and not file.exists():
        simulator = settings.data_dir / "simulator.db"
        hint = f"; the simulator's is DATABASE_URL=sqlite:///{simulator}" if simulator.exists() else ""
        raise StoreError(f"{file}: no such database yet: run `parley run`, or set DATABASE_URL{hint}")
    database = Database(settings.database_address, connections=3)
    try:
        await verify_schema(database)
        yield database
    finally:
        await database.aclose()
