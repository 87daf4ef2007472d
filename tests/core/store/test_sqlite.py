import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from core.store.database import Database
from core.store.schema import state
from core.store.sqlite import connect

ROWS = [{"scope": "app", "owner": "a", "key": key, "value": number} for number, key in enumerate("abc")]


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"


async def test_a_statement_and_its_rows_take_one_trip_to_the_thread(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with database.write() as connection:
        with caplog.at_level(logging.DEBUG, logger="aiosqlite"):
            inserted = await connection.execute(sa.insert(state).returning(state.c.key), ROWS[0])
            assert inserted.scalars().all() == ["a"]
    trips = [record for record in caplog.records if record.msg.startswith("executing")]
    assert len(trips) == 1


async def test_statements_tell_their_rows_columns_and_counts(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(sa.insert(state), ROWS)
        assert (await connection.execute(sa.update(state).values(owner="b"))).rowcount == 3
        assert (await connection.execute(sa.update(state).where(state.c.key == "x").values(owner="c"))).rowcount == 0
        returned = await connection.execute(sa.delete(state).where(state.c.key == "c").returning(state.c.value))
        assert (list(returned.keys()), list(returned)) == (["value"], [(2,)])
        selected = await connection.execute(sa.select(state.c.key, state.c.owner).order_by(state.c.key))
        assert (list(selected.keys()), list(selected)) == (["key", "owner"], [("a", "b"), ("b", "b")])
        empty = await connection.execute(sa.select(state.c.key).where(state.c.key == "x"))
        assert (list(empty.keys()), list(empty)) == (["key"], [])


async def test_many_rows_and_a_memory_database_work() -> None:
    database = Database("sqlite+aiosqlite:///:memory:")
    async with database.write() as connection:
        await connection.execute(sa.text("CREATE TABLE numbers (n INTEGER)"))
        await connection.execute(sa.text("INSERT INTO numbers VALUES (:n)"), [{"n": n} for n in range(1_000)])
    async with database.read() as connection:
        rows = (await connection.execute(sa.text("SELECT n FROM numbers ORDER BY n"))).scalars()
        assert rows.all() == list(range(1_000))
    await database.aclose()


async def test_a_connection_that_is_stopped_while_it_closes_ends(tmp_path: Path) -> None:
    connection = await connect(str(tmp_path / "parley.db"))
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    connection.stop()
    async with asyncio.timeout(10):
        await closing


async def test_a_transaction_without_statements_leaves_none_open(database: Database) -> None:
    for _ in range(2):
        async with database.write():
            pass
    await database.run(sa.insert(state).returning(state.c.key), **ROWS[0])
    with sqlite3.connect(str(database.file), timeout=0) as other:
        other.execute("DELETE FROM state")
