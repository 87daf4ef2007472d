from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.turns import many_workers, one_worker, worker
from benchmarks.turns.many_workers import Throughput
from benchmarks.turns.one_worker import ConcurrentTurns, IdleUsage, SingleTurns
from benchmarks.turns.report import TurnFigures, table
from benchmarks.turns.statements import count_statements, select_writes
from core.store.database import Database
from core.store.schema import sessions, turns
from tests.conftest import get_database_url


def test_writing_statements_are_counted_separately() -> None:
    assert select_writes(Counter({"read": 9, "begin": 2, "commit": 2, "update turns": 3})) == {"update turns": 3}


async def test_a_write_after_a_common_table_expression_is_counted_as_a_write(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    found = sa.select(sessions.c.id).cte("found")
    async with database.write() as connection:
        await connection.run_sync(turns.metadata.create_all)
    with count_statements(database) as counts:
        async with database.write() as connection:
            await connection.execute(sa.update(turns).where(turns.c.session == found.c.id).values(text=None))
    await database.aclose()
    assert select_writes(counts) == {"update turns": 1}


async def test_a_turn_of_one_message_has_at_most_13_statements_of_which_five_write(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_worker, "TURNS", 5)
    monkeypatch.setattr(one_worker, "WARM_UP_TURNS", 20)  # no session is new afterwards
    monkeypatch.setattr(one_worker, "IDLE_SECONDS", 0.1)
    steps, _ = await one_worker.measure_single_turns(database_url)
    written = select_writes(steps.statements)
    own_writes = {"insert inbox", "insert messages", "insert sessions"}
    heartbeats = {"update workers", "delete workers"}
    assert sum(number for kind, number in written.items() if kind not in own_writes | heartbeats) <= 5
    assert sum(number for kind, number in steps.statements.items() if kind not in heartbeats) <= 13


async def test_queued_sessions_run_concurrently(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_worker, "CONCURRENT_SESSIONS", 10)
    monkeypatch.setattr(one_worker, "MODEL_SECONDS", 0.5)
    assert (await one_worker.measure_concurrent_turns(database_url, has_agent=False)).peak == 10


async def test_failed_turns_fail_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_worker, "CONCURRENT_SESSIONS", 2)
    monkeypatch.setattr(worker.OneWordModel, "stream", lambda *_: None)
    with pytest.raises(RuntimeError, match="2 turns have failed"):
        await one_worker.measure_concurrent_turns(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")


@pytest.mark.usefixtures("python")
async def test_worker_processes_share_the_turns(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_workers, "SESSIONS", 4)
    monkeypatch.setattr(many_workers, "TURNS_PER_SESSION", 2)
    throughput = await many_workers.measure_throughput(postgres, 2)
    assert (throughput.turns, sum(throughput.turns_by_worker)) == (8, 8)


def test_the_table_has_a_column_per_database_and_a_dash_for_no_value() -> None:
    steps = SingleTurns(0.001, 0.002, 0.003, {"insert inbox": 1.0, "update turns": 3.0, "read": 4.0})
    together = ConcurrentTurns(2.5, 300, 0.01, 0.02)
    throughput = Throughput(1, 500, 5.0, 2.5, 0.01, 0.02, (500,))
    sqlite = TurnFigures("SQLite", steps, IdleUsage(24, 0.09), together, together, [throughput])
    postgres = TurnFigures("PostgreSQL", steps, IdleUsage(24, 0.09), together, together, [throughput], 11.0, 0.02)
    lines = table([sqlite, postgres]).splitlines()
    assert lines[0] == "| | SQLite | PostgreSQL |"
    assert "| another worker takes over after kill -9 | - | 11.0 s |" in lines
    assert "| of these, without the message, the events, new sessions and heartbeats | 3 | 3 |" in lines


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return get_database_url(request.param, request, tmp_path)
