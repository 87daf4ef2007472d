"""Options of SQLAlchemy's engine: time limits, pool, and parameters of the URL."""

import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import sqlalchemy as sa

from core.errors import SettingsError

#: Seconds that connecting to PostgreSQL may take.
CONNECT_TIMEOUT_SECONDS = 10.0

#: Seconds that a statement on PostgreSQL may take.
STATEMENT_TIMEOUT_SECONDS = 20.0

#: Query parameters that a database URL may have, with the types of their values, by the driver's name.
_PARAMETERS: Mapping[str, Mapping[str, Callable[[str], object]]] = {
    "asyncpg": {
        "command_timeout": float,
        "host": str,
        "krbsrvname": str,
        "gsslib": str,
        "max_cacheable_statement_size": int,
        "max_cached_statement_lifetime": int,
        "passfile": str,
        "port": str,
        "prepared_statement_cache_size": int,
        "service": str,
        "servicefile": str,
        "ssl": str,
        "statement_cache_size": int,
        "target_session_attrs": str,
        "timeout": float,
    },
    "aiosqlite": {"cached_statements": int, "timeout": float},
}


class _SqliteConnection(sqlite3.Connection):
    """SQLite connection that reads damaged texts, and rolls back when it is closed.

    In a text that is not UTF-8, U+FFFD replaces the damaged bytes. An error would make all rows of the query
    unreadable.

    `close` rolls back an open transaction. `sqlite3` does not really close a connection with an unread cursor: the
    cursor of a cancelled task would keep the file locked until the task's traceback is freed.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text_factory = partial(str, encoding="utf-8", errors="replace")

    def close(self) -> None:
        if self.in_transaction:
            self.rollback()
        super().close()


def engine_options(address: sa.URL, *, connections: int) -> dict[str, Any]:
    """Return the keyword arguments of SQLAlchemy's `create_async_engine` for a URL.

    The options of the URL's query go to the driver. The pool does not close idle connections: to open one takes as long
    as ten statements, and each statement has to be prepared again on a new connection.

    Args:
        address: the URL of the database.
        connections: the most connections at once.

    Raises:
        SettingsError: the URL has a parameter that the driver does not know, or whose value is not a number.
    """
    known = _PARAMETERS.get(address.get_driver_name(), {})
    faults, typed = [], {}
    for name, word in address.query.items():
        if name not in known:
            faults.append(f"DATABASE_URL: {name} is none of the parameters that it may have: {', '.join(known)}")
        elif known[name] is not str:
            try:
                typed[name] = known[name](str(word))
            except ValueError:
                faults.append(f"DATABASE_URL: {name} must be a number")
    if faults:
        raise SettingsError(*faults)
    if address.get_backend_name() == "sqlite" and address.database in (None, "", ":memory:"):
        return {"connect_args": typed, "pool_reset_on_return": None}
    default = (
        {"factory": _SqliteConnection}
        if address.get_backend_name() == "sqlite"
        else {
            "timeout": CONNECT_TIMEOUT_SECONDS,
            "command_timeout": STATEMENT_TIMEOUT_SECONDS,
        }
    )
    # `Database` leaves no transaction open: a rollback without one would wait for the connection's thread in vain.
    # LIFO: the connection that was used last has prepared the statements that are needed next.
    pool = {"pool_size": connections, "max_overflow": 0, "pool_reset_on_return": None, "pool_use_lifo": True}
    return {"connect_args": default | typed, **pool}
