"""Options of SQLAlchemy's engine: time limits, pool, and parameters of the URL."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

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


def engine_options(address: sa.URL, *, connections: int) -> dict[str, Any]:
    """Return the keyword arguments of SQLAlchemy's `create_async_engine` for a URL.

    The options of the URL's query go to the driver. The pool does not close idle connections: to open one takes as long
    as ten statements, and each statement has to be prepared again on a new connection.

    Raises:
        SettingsError: the URL has a parameter that the driver does not know, or whose value is not a number.
    """
    known = _PARAMETERS.get(address.get_driver_name(), {})
    faults = []
    typed = {}
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
    if address.get_backend_name() == "sqlite":
        from core.store.sqlite import connect  # noqa: PLC0415 - imports aiosqlite, which few commands need

        path = address.database or ":memory:"
        driver: dict[str, Any] = {"async_creator": partial(connect, path, **typed)}
        if path == ":memory:":
            return {**driver, "pool_reset_on_return": None}
    else:
        timeouts = {"timeout": CONNECT_TIMEOUT_SECONDS, "command_timeout": STATEMENT_TIMEOUT_SECONDS}
        driver = {"connect_args": timeouts | typed}
    # `Database` leaves no transaction open: a rollback without one would wait for the connection's thread in vain.
    # LIFO: the connection that was used last has prepared the statements that are needed next.
    pool = {"pool_size": connections, "max_overflow": 0, "pool_reset_on_return": None, "pool_use_lifo": True}
    return {**driver, **pool}


def normalize_database_url(value: str) -> str:
    """Return a database's URL with its async driver; an empty one unchanged.

    Heroku's `postgres://` is accepted. The parameter `sslmode` becomes `ssl`, as asyncpg calls it.

    Raises:
        ValueError: the value is no URL of PostgreSQL or SQLite.
    """
    for prefix in ("postgres://", "postgresql://"):
        if value.startswith(prefix):
            value = f"postgresql+asyncpg://{value.removeprefix(prefix)}"
    if value.startswith("sqlite://"):
        value = f"sqlite+aiosqlite://{value.removeprefix('sqlite://')}"
    if value and not value.startswith(("postgresql+asyncpg://", "sqlite+aiosqlite://")):
        raise ValueError("it must be a postgresql:// or sqlite:/// URL")
    if value:
        try:
            url = sa.make_url(value)
        except (ArgumentError, ValueError):
            raise ValueError("it is not a URL") from None
        if "sslmode" in url.query:  # libpq's name for what asyncpg calls `ssl`
            query = {"ssl" if name == "sslmode" else name: word for name, word in url.query.items()}
            value = url.set(query=query).render_as_string(hide_password=False)
    return value
