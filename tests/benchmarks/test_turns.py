from collections import Counter
from pathlib import Path

import pytest

from benchmarks.turns import many_workers as several
from benchmarks.turns import one_worker as alone
from benchmarks.turns import worker as crew
from benchmarks.turns.many_workers import Pace
from benchmarks.turns.one_worker import Idle, Steps, Together
from benchmarks.turns.report import Figures, table
from benchmarks.turns.statements import writes


def test_writing_statements_are_counted_separately() -> None:
    assert writes(Counter({"read": 9, "begin": 2, "commit": 2, "update turns": 3})) == {"update turns": 3}


async def test_a_turn_of_one_message_writes_in_at_most_five_statements(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "TURNS", 5)
    monkeypatch.setattr(alone, "WARM", 20)  # no session is new afterwards
    monkeypatch.setattr(alone, "IDLE", 0.1)
    steps, _ = await alone.one_at_a_time(database_url)
    written = writes(steps.statements)
    said = {"insert inbox", "insert messages", "insert sessions"}
    heartbeats = {"update workers", "delete workers"}
    assert sum(number for kind, number in written.items() if kind not in said | heartbeats) <= 5


async def test_queued_sessions_run_concurrently(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "AT_ONCE", 10)
    monkeypatch.setattr(alone, "MODEL_SECONDS", 0.5)
    assert (await alone.all_at_once(database_url, is_bare=True)).peak == 10


async def test_failed_turns_fail_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "AT_ONCE", 2)
    monkeypatch.setattr(crew.Model, "stream", lambda *_: None)
    with pytest.raises(RuntimeError, match="2 turns have failed"):
        await alone.all_at_once(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")


@pytest.mark.usefixtures("python")
async def test_worker_processes_share_the_turns(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "SESSIONS", 4)
    monkeypatch.setattr(several, "TURNS_EACH", 2)
    pace = await several.pace(postgres, 2)
    assert (pace.turns, sum(pace.shares)) == (8, 8)


def test_the_table_has_a_column_per_database_and_a_dash_for_no_value() -> None:
    steps = Steps(0.001, 0.002, 0.003, {"insert inbox": 1.0, "update turns": 3.0, "read": 4.0})
    together = Together(2.5, 300, 0.01, 0.02)
    pace = Pace(1, 500, 5.0, 2.5, 0.01, 0.02, (500,))
    sqlite = Figures("SQLite", steps, Idle(24, 0.09), together, together, [pace])
    postgres = Figures("PostgreSQL", steps, Idle(24, 0.09), together, together, [pace], 11.0, 0.02)
    lines = table([sqlite, postgres]).splitlines()
    assert lines[0] == "| | SQLite | PostgreSQL |"
    assert "| another worker takes over after kill -9 | - | 11.0 s |" in lines
    assert "| of these, besides the message, the events, new sessions and heartbeats | 3 | 3 |" in lines


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
