"""Figures as a Markdown table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.turns.many_workers import SESSIONS, Pace
from benchmarks.turns.one_worker import AT_ONCE, MODEL_SECONDS, Idle, Steps, Together
from benchmarks.turns.statements import writes


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one database. SQLite has one worker: no takeover, and no remote stop."""

    database: str
    steps: Steps
    idle: Idle
    together: Together
    bare: Together
    paces: Sequence[Pace]
    takeover: float | None = None
    cancel: float | None = None


def table(columns: Sequence[Figures]) -> str:
    """Return a table with a column per database."""
    rows = [_rows(column) for column in columns]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| | " + " | ".join(column.database for column in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | " + " | ".join(row.get(name, "-") for row in rows) + " |" for name in names]
    return "\n".join(lines)


def _rows(of: Figures) -> dict[str, str]:
    steps, asked = of.steps, of.steps.statements
    rows = {
        "accept to start, median": _ms(steps.start),
        "accept to start, 99th percentile": _ms(steps.start_p99),
        "the accept alone, median": _ms(steps.accept),
    }
    for pace in of.paces:
        name = f"{pace.turns} turns in {SESSIONS} sessions, {pace.workers} worker{'s' * (pace.workers > 1)}"
        rows[name] = f"{pace.seconds:.1f} s ({pace.turns / pace.seconds:.0f} a second)"
        rows[f"{name}: CPU of the workers, a turn"] = _ms(pace.cpu / pace.turns)
        rows[f"{name}: the loop late / busy on end, at most"] = f"{_ms(pace.late)} / {_ms(pace.busiest)}"
    for what, together in (("", of.together), (", no agent and no reply", of.bare)):
        name = f"{AT_ONCE} sessions of {MODEL_SECONDS:g} s each{what}"
        rows[name] = f"{together.seconds:.1f} s, {together.peak} at once"
        rows[f"{name}: the loop late / busy on end, at most"] = f"{_ms(together.late)} / {_ms(together.busiest)}"
    return {
        **rows,
        "statements a turn that write": "<br>".join(f"{kind} {number:g}" for kind, number in _rounded(asked)),
        "of these, besides the message, the events, new sessions and heartbeats": f"{_besides(asked):g}",
        "all statements a turn, with begin and commit": f"{sum(asked.values()):.1f}",
        "idle: statements a minute, with begin and commit": f"{of.idle.statements:.0f}",
        "idle: CPU a minute": _ms(of.idle.cpu),
        "another worker takes over after kill -9": "-" if of.takeover is None else f"{of.takeover:.1f} s",
        "cancelled from another process, at worst": "-" if of.cancel is None else _ms(of.cancel),
    }


def _rounded(asked: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(kind, round(number, 2)) for kind, number in writes(asked).items() if round(number, 2)]


def _besides(asked: Mapping[str, float]) -> float:
    others = ("insert inbox", "insert messages", "insert sessions", "update workers", "delete workers")
    return sum(number for kind, number in _rounded(asked) if kind not in others)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
