import asyncio
import os
import signal
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from core.errors import SettingsError, StoreError
from core.observability import metrics
from core.store import database as database_module
from core.store.database import Database
from core.store.schema import state, write_checks
from tests.core.conftest import FailingDatabase, open_database
from tests.processes.postgres import PostgresServer

NAME, VALUE = sa.bindparam("name", type_=sa.Text), sa.bindparam("as", type_=sa.JSON)
SET = sa.insert(state).values(scope="app", owner="a", key=NAME, value=VALUE).returning(state.c.key)
KEYS = sa.select(state.c.key, state.c.scope).order_by(state.c.key)
PAGES = sa.select(sa.column("page_count", sa.Integer)).select_from(sa.text("pragma_page_count"))
UNKNOWN = sa.select(sa.table("nowhere", sa.column("x")).c.x)


async def list_keys(database: Database) -> list[str]:
    return [key for key, _ in await database.run(KEYS)]


async def test_one_statement_is_a_transaction_of_its_own(database: FailingDatabase) -> None:
    assert [tuple(row) for row in await database.run(SET, name="k", **{"as": {"n": 1}})] == [("k",)]
    async with database.read() as connection:
        assert (await connection.execute(sa.select(state.c.value))).scalar_one() == {"n": 1}


async def test_any_number_of_statements_run_at_once(database: FailingDatabase) -> None:
    names = [f"k{number:02}" for number in range(40)]
    await asyncio.gather(*(database.run(SET, name=name, **{"as": None}) for name in names))
    assert await list_keys(database) == names


async def test_a_statement_waits_for_the_transaction_that_writes(database: FailingDatabase) -> None:
    async with database.write() as connection:
        await connection.execute(sa.insert(state).values(scope="app", owner="a", key="k", value=1))
        assert await list_keys(database) == []
    assert await list_keys(database) == ["k"]


async def test_a_cancelled_statement_leaves_the_database_in_order(database: FailingDatabase) -> None:
    for number in range(5):
        running = asyncio.create_task(database.run(SET, name=f"k{number}", **{"as": 1}))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
    await database.run(SET, name="last", **{"as": 1})
    assert (await list_keys(database))[-1] == "last"


async def test_invalid_statements_raise_permanent_errors(database: FailingDatabase) -> None:
    await database.run(SET, name="k", **{"as": 1})
    with pytest.raises(StoreError) as caught:
        await database.run(UNKNOWN)
    assert not caught.value.retryable
    with pytest.raises(IntegrityError):
        await database.run(SET, name="k", **{"as": 1})
    with pytest.raises(StoreError) as caught:
        async with database.read() as connection:
            await connection.execute(sa.text("SELECT nowhere"))
    assert not caught.value.retryable
    with pytest.raises(IntegrityError):
        async with database.write() as connection:
            await connection.execute(sa.insert(state).values(scope="app", owner="a", key="k", value=1))


async def test_failed_statements_of_a_batch_do_not_affect_others(database: FailingDatabase) -> None:
    runs = [database.run(statement) for _ in range(8) for statement in (UNKNOWN, KEYS)]
    async with asyncio.timeout(30):
        results = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(result) for result in results] == [StoreError, list] * 8
    assert await list_keys(database) == []


async def test_each_statement_of_a_batch_succeeds_or_fails_by_itself(
    database: FailingDatabase,
) -> None:
    names = [f"k{number // 3}" for number in range(150)]  # three statements insert the same name: one row is stored
    runs = [database.run(SET, name=name, **{"as": 1}) for name in names]
    async with asyncio.timeout(30):
        results = await asyncio.gather(*runs, return_exceptions=True)
    by_name = [sorted(type(result).__name__ for result in results[first : first + 3]) for first in range(0, 150, 3)]
    assert by_name == [["IntegrityError", "IntegrityError", "list"]] * 50
    assert await list_keys(database) == sorted(set(names))


async def test_cancelled_writes_do_not_affect_the_others_of_their_batch(database: FailingDatabase) -> None:
    async with database.write():
        runs = [asyncio.create_task(database.run(SET, name=f"k{number}", **{"as": 1})) for number in range(60)]
        await asyncio.sleep(0)
        for run in runs[::2]:
            run.cancel()
    async with asyncio.timeout(30):
        await asyncio.gather(*runs, return_exceptions=True)
    stored = await list_keys(database)
    assert {f"k{number}" for number in range(1, 60, 2)} <= set(stored)
    if database.is_sqlite:  # the open write delayed all statements: no cancelled one ran
        assert len(stored) == 30


async def test_a_closed_database_is_not_reopened_by_a_late_call(database: FailingDatabase) -> None:
    opened = list[Any]()
    sa.event.listen(database.engine.sync_engine, "connect", lambda connection, _record: opened.append(connection))
    await database.ping()
    late = [asyncio.create_task(database.run(SET, name=f"k{n}", **{"as": n})) for n in range(3)]
    await asyncio.sleep(0)
    await database.aclose()
    await asyncio.wait(late)
    with pytest.raises(StoreError, match="the database is closed"):
        await database.ping()
    for way in (database.read, database.write):
        with pytest.raises(StoreError, match="the database is closed"):
            async with way():
                pass
    assert opened
    assert all(map(is_closed, opened))


def is_closed(connection: Any) -> bool:
    """Return whether a SQLAlchemy connection of asyncpg or aiosqlite is closed."""
    driver = connection.driver_connection
    if isinstance(driver, asyncpg.Connection):
        return bool(driver.is_closed())
    try:
        return driver.in_transaction is None
    except ValueError:  # aiosqlite: no active connection
        return True


async def test_the_first_query_reconnects_to_a_restarted_server(postgres_server: PostgresServer, postgres: str) -> None:
    database = Database(postgres, connections=4)
    await asyncio.gather(*(list_keys(database) for _ in range(4)))
    await asyncio.to_thread(postgres_server.stop)
    with pytest.raises(StoreError) as caught:
        await list_keys(database)
    assert caught.value.retryable
    await asyncio.to_thread(postgres_server.start)
    assert await asyncio.gather(*(list_keys(database) for _ in range(4))) == [[]] * 4
    async with database.read() as connection:
        assert (await connection.execute(sa.select(state))).all() == []
    await database.aclose()


@pytest.mark.parametrize(
    ("pragma", "error"),
    [
        ("query_only=ON", "SQLITE_READONLY): the file is read-only: let the bot write to the file"),
        ("max_page_count=1", "SQLITE_FULL): the disk is full: make room on it"),
    ],
)
async def test_a_refused_write_of_sqlite_is_counted_and_named_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pragma: str, error: str
) -> None:
    counted = list[dict[str, str]]()
    monkeypatch.setattr(metrics.database_errors, "add", lambda _one, labels: counted.append(labels))
    url = f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    async with open_database(Database(url)) as database:
        await database.ping()
    limited = Database(url)
    sa.event.listen(limited.engine.sync_engine, "connect", lambda c, _: c.cursor().execute(f"PRAGMA {pragma}"))
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            await limited.run(SET, name="k", **{"as": "x" * 100_000})
        assert error in str(caught.value)
    assert [labels["kind"] for labels in counted] == [error.partition(")")[0]] * 2
    assert await list_keys(limited) == []
    await limited.aclose()


async def test_on_a_full_disk_the_writes_that_fit_are_stored(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    async with open_database(Database(url)) as database:
        [(pages,)] = await database.run(PAGES)
    limited = Database(url)
    pragma = f"PRAGMA max_page_count={pages + 10}"
    sa.event.listen(limited.engine.sync_engine, "connect", lambda c, _: c.cursor().execute(pragma))
    runs = [limited.run(SET, name=f"k{n}", **{"as": "x" * (100_000 if n % 2 else 10)}) for n in range(10)]
    results = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(result) for result in results] == [list, StoreError] * 5
    assert await list_keys(limited) == [f"k{n}" for n in range(0, 10, 2)]
    await limited.aclose()


async def test_writes_fail_retryably_while_another_program_has_the_lock(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    async with open_database(Database(url)):
        database = Database(url)
        sa.event.listen(
            database.engine.sync_engine, "connect", lambda c, _: c.cursor().execute("PRAGMA busy_timeout=10")
        )
        with closing(sqlite3.connect(tmp_path / "parley.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            runs = [database.run(SET, name=f"k{n}", **{"as": n}) for n in range(6)]
            results = await asyncio.gather(*runs, return_exceptions=True)
            assert [isinstance(result, StoreError) and result.retryable for result in results] == [True] * 6
            assert await list_keys(database) == []
        second_runs = [database.run(SET, name=f"k{n}", **{"as": n}) for n in range(6)]
        await asyncio.gather(*second_runs)
        assert len(await list_keys(database)) == 6
        await database.aclose()


async def test_closing_does_not_wait_for_a_hanging_server(
    postgres: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database_module, "CLOSE_SECONDS", 0.2)
    database = Database(postgres)
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(database.read()) for _ in range(3)]
        backends = [
            (await connection.execute(sa.text("SELECT pg_backend_pid()"))).scalar_one() for connection in connections
        ]
    for backend in backends:
        os.kill(backend, signal.SIGSTOP)
    try:
        async with asyncio.timeout(30):
            await database.aclose()
    finally:
        for backend in backends:
            os.kill(backend, signal.SIGCONT)
    assert "they end with the process" in caplog.text


async def test_an_unreachable_or_silent_server_is_named_with_a_remedy() -> None:
    errors = list[str]()
    async with await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0) as server:
        address = f"postgresql+asyncpg://bot@127.0.0.1:{server.sockets[0].getsockname()[1]}/none?timeout=0.1"
        errors.append(str(await get_write_error(Database(address))))
    errors.append(str(await get_write_error(Database(address))))
    assert errors[0].startswith("the database cannot be used (TimeoutError): the server does not answer in time")
    assert errors[1].startswith("the database cannot be used (ConnectionRefusedError): nothing listens at that address")


async def test_a_read_only_server_is_reported_with_a_remedy_and_recovers(postgres: str) -> None:
    name = sa.make_url(postgres).database
    switch = "SET default_transaction_read_only = off; ALTER DATABASE {} SET default_transaction_read_only = {}"
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()"
    database = Database(postgres)
    await database.ping()
    operator = await asyncpg.connect(postgres.replace("+asyncpg", ""))
    try:
        await operator.execute(switch.format(name, "on"))
        await operator.execute(others.format(name))
        async with asyncio.timeout(30):  # the switch ended the open connections
            while (error := await get_write_error(database)) is None or "ReadOnlySQLTransactionError" not in str(error):
                pass
        assert "set DATABASE_URL to the primary server" in str(error)
        assert error.retryable
        assert await list_keys(database) == []
    finally:
        await operator.execute(switch.format(name, "off"))
        await operator.execute(others.format(name))
        await operator.close()
    async with asyncio.timeout(30):
        while await get_write_error(database) is not None:
            pass
    await database.aclose()


async def get_write_error(database: Database) -> StoreError | None:
    """Return the error that the database raises for a write; None if it succeeds."""
    try:
        await database.ping()
    except StoreError as error:
        return error
    return None


async def test_there_are_at_most_the_allowed_connections(postgres: str) -> None:
    database = Database(postgres, connections=3)
    busy = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")

    async def count_keys() -> int:
        return len(await list_keys(database))

    async def count_connections() -> int:
        async with database.read() as connection:
            return int((await connection.execute(busy)).scalar_one())

    looks = [*(count_connections() for _ in range(10)), *(count_keys() for _ in range(10))]
    assert max(await asyncio.gather(*looks)) <= 3
    await database.aclose()


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("postgresql+asyncpg://u:secret@h/d?channel_binding=require", "channel_binding"),
        ("postgresql+asyncpg://u:secret@h/d?timeout=soon", "timeout"),
        ("sqlite+aiosqlite:///x.db?mode=ro", "mode"),
    ],
)
def test_a_parameter_that_the_driver_does_not_know_is_named(url: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=f"DATABASE_URL: {fault}") as caught:
        Database(url)
    assert "secret" not in str(caught.value)


async def test_a_parameter_that_the_driver_knows_is_passed_on(postgres: str) -> None:
    database = Database(f"{postgres}?timeout=5&command_timeout=7.5&ssl=disable&statement_cache_size=10")
    assert await list_keys(database) == []
    await database.aclose()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_cancelled_transaction_unlocks_the_file_at_once(database: FailingDatabase) -> None:
    async def write() -> None:
        async with database.write() as connection:
            await connection.execute(sa.update(write_checks).values(written_at=1.0))
            (await connection.execute(sa.select(write_checks))).all()

    await database.ping()
    cancelled = []  # their tracebacks refer to the cursors
    for rounds in range(30):
        writing = asyncio.create_task(write())
        for _ in range(rounds):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        cancelled.append(writing)
        async with asyncio.timeout(5):
            await database.ping()
