from pathlib import Path

import pytest

from benchmarks.turns import many_workers, one_worker
from benchmarks.turns.statements import select_writes
from tests.conftest import get_database_url


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


@pytest.mark.usefixtures("python")
async def test_worker_processes_share_the_turns(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_workers, "SESSIONS", 4)
    monkeypatch.setattr(many_workers, "TURNS_PER_SESSION", 2)
    throughput = await many_workers.measure_throughput(postgres, 2)
    assert (throughput.turns, sum(throughput.turns_by_worker)) == (8, 8)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return get_database_url(request.param, request, tmp_path)
