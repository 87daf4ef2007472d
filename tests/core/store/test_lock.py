import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import StoreError
from core.store.database import Database
from core.store.lock import hold_database_lock
from tests.fixtures.full_disk import fill_disk

HOLDER = """
import sys
from core.store.database import Database
from core.store.lock import hold_database_lock
with hold_database_lock(Database(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_on_a_file_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StoreError, match=rf"parley\.db is in use by process {holder.pid}: .*DATABASE_URL"):
        hold_database_lock(Database(url)).__enter__()
    holder.kill()
    holder.wait()
    with hold_database_lock(Database(url)):
        pass


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    (tmp_path / "parley.db.lock").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        hold_database_lock(database).__enter__()


def test_a_full_disk_is_named(disk: Path) -> None:
    with fill_disk(disk), pytest.raises(StoreError, match=r"parley\.db\.lock cannot be written \(No space left"):
        hold_database_lock(Database(f"sqlite+aiosqlite:///{disk / 'parley.db'}")).__enter__()


def test_a_read_only_disk_is_named(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(StoreError, match=r"parley\.db\.lock cannot be written \(Read-only file system\): let the bot"):
        hold_database_lock(Database(f"sqlite+aiosqlite:///{disk / 'parley.db'}")).__enter__()


async def test_a_database_that_is_no_file_needs_no_lock(postgres: str) -> None:
    for url in (postgres, "sqlite+aiosqlite:///:memory:"):
        with hold_database_lock(Database(url)), hold_database_lock(Database(url)):
            pass
