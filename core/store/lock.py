"""Lock file: one process at a time on one SQLite file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import StoreError
from core.store.database import Database


@contextmanager
def hold_database_lock(database: Database) -> Iterator[None]:
    """Lock the SQLite file of a database during the block, as `hold_file_lock` does.

    Nothing is locked for PostgreSQL and for SQLite in memory. A second process on SQLite would take over the running
    turns of the first.
    """
    path = database.file
    if path is None:
        yield
        return
    hint = "give this one a DATABASE_URL of its own (with PostgreSQL, several work on one database)"
    with hold_file_lock(path, hint):
        yield


@contextmanager
def hold_file_lock(path: Path, hint: str) -> Iterator[None]:
    """Lock the file `NAME.lock` beside a path during the block, without waiting.

    The lock is `flock`, which the operating system releases when the process ends. The id of this process is written
    into the lock file, which is not deleted at the end. The file at `path` need not exist, and is not opened. `hint` is
    advice to operators as an alternative to stopping the process that has the lock.

    Raises:
        StoreError: another process has the lock, and the text has the id of that process; or the lock file cannot be
            written.
    """
    lock = path.with_name(f"{path.name}.lock")
    with _name_file_in_errors(lock):
        file = lock.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            process = file.read().strip() or "?"
            raise StoreError(f"{path} is in use by process {process}: stop that one first, or {hint}") from error
        with _name_file_in_errors(lock):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def get_lock_holder(database: Database) -> str | None:
    """Return the id of the process that has the lock of a SQLite file; `?` if it is not written yet."""
    path = database.file
    lock = path and path.with_name(f"{path.name}.lock")
    if lock is None or not lock.exists():
        return None
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return file.read().strip() or "?"
    return None


@contextmanager
def _name_file_in_errors(path: Path) -> Iterator[None]:
    """Translate each `OSError` in the block to a `StoreError` with the file's path."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}): let the bot write there, and check the free space"
        ) from error
