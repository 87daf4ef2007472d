"""Translation of database drivers' errors to `StoreError`, with operator advice."""

import sqlite3
import sys
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.errors import StoreError, UnreadableRowError
from core.observability import metrics

#: Beginnings of the names of SQLite errors after which a retry may succeed: also of `SQLITE_IOERR_WRITE`.
_RETRYABLE_SQLITE_ERRORS = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_NOMEM",
    "SQLITE_CANTOPEN",
    "SQLITE_PROTOCOL",
)

#: SQLSTATE classes of errors that a retry would repeat: unsupported, data, constraints, access, missing objects.
_PERMANENT_SQLSTATE_CLASSES = ("0A", "22", "23", "28", "3D", "3F", "42")

#: Advice for operators, by the beginning of the name of the driver's error.
_ADVICE = {
    "SQLITE_FULL": "the disk is full: make room on it",
    "SQLITE_READONLY": "the file is read-only: let the bot write to the file and its folder",
    "SQLITE_CANTOPEN": "let the bot read and write the file and its folder",
    "SQLITE_BUSY": "another program holds a lock on the file: stop that program",
    "SQLITE_CORRUPT": "the file is damaged: restore a backup",
    "SQLITE_IOERR": "the disk is full or fails: check the disk",
    "SQLITE_NOTADB": "the file is not a SQLite database: set another DATABASE_URL",
    "DiskFullError": "the server's disk is full: make room on it",
    "ReadOnlySQLTransactionError": "the server is read-only: set DATABASE_URL to the primary server",
    "InsufficientPrivilegeError": "grant the rights to the user of DATABASE_URL, and check the row limit of the plan",
    "TimeoutError": "the server does not answer in time: check that it runs and can be reached",
    "ConnectionRefusedError": "nothing listens at that address: check that the server runs, and DATABASE_URL",
    "TooManyConnectionsError": "all connections of the server are taken: lower DATABASE_POOL_SIZE",
}

#: Errors of a database that cannot be used.
_DATABASE_ERRORS = (DBAPIError, PoolTimeoutError, OSError, sqlite3.Error)

#: Errors of code that gets a value of another type or shape than the one that was stored.
PARSE_ERRORS = (TypeError, ValueError, AttributeError, LookupError)


def _asyncpg_errors(*names: str, other: tuple[type[Exception], ...] = ()) -> tuple[type[Exception], ...]:
    """Return `other` and the classes of `asyncpg.exceptions`; only `other` while asyncpg is not imported."""
    exceptions = sys.modules.get("asyncpg.exceptions")
    return (*other, *(getattr(exceptions, name) for name in names)) if exceptions is not None else other


@contextmanager
def name_row(table: str, id_: object) -> Iterator[None]:
    """Raise an `UnreadableRowError` that names a row if the block, which reads the row, raises one of `PARSE_ERRORS`.

    The same goes for a `StatementError` of SQLAlchemy that is no `DBAPIError`: it cannot write a value of the row back.
    """
    try:
        yield
    except (*PARSE_ERRORS, StatementError) as error:
        if isinstance(error, DBAPIError):
            raise
        raise UnreadableRowError(f"row {id_} of {table} cannot be read") from error


@contextmanager
def convert_database_errors() -> Iterator[None]:
    """Translate the drivers' and SQLAlchemy's errors in the block to `StoreError`.

    Each `StoreError` is counted in the metric `database_errors`.

    Raises:
        StoreError: the database cannot be used; the text may have advice for operators, and `retryable` is set.
        IntegrityError: SQLAlchemy's error, unchanged or for the driver's: a constraint of a table does not hold.
    """
    try:
        yield
    except IntegrityError:
        raise
    except _asyncpg_errors("IntegrityConstraintViolationError", other=(sqlite3.IntegrityError,)) as error:
        raise IntegrityError(None, None, error) from error
    # asyncpg: an internal error, when the server ends the connection in the middle of a message
    except _asyncpg_errors("PostgresError", "InterfaceError", "InternalClientError", other=_DATABASE_ERRORS) as error:
        fault: BaseException = error
        while (cause := fault.__cause__) is not None and not isinstance(cause, CancelledError):  # a limit's own
            fault = cause
        kind = getattr(fault, "sqlite_errorname", type(fault).__name__)  # `SQLITE_FULL`, `InvalidPasswordError`
        advice = next((f": {advice}" for known, advice in _ADVICE.items() if kind.startswith(known)), "")
        metrics.database_errors.add(1, {"kind": kind})
        store_error = StoreError(f"the database cannot be used ({kind}){advice}")
        store_error.retryable = _is_retryable(fault)
        raise store_error from error


def _is_retryable(fault: BaseException) -> bool:
    """Return whether a statement that failed may succeed later. SQLite: only `_RETRYABLE_SQLITE_ERRORS`."""
    if isinstance(fault, sqlite3.Error):
        return getattr(fault, "sqlite_errorname", "").startswith(_RETRYABLE_SQLITE_ERRORS)
    if isinstance(fault, _asyncpg_errors("PostgresError")):
        return not (getattr(fault, "sqlstate", "") or "").startswith(_PERMANENT_SQLSTATE_CLASSES)
    if isinstance(fault, _asyncpg_errors("InterfaceError")):
        return not isinstance(fault, ValueError)  # an argument that it cannot send
    return True
