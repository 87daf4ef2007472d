"""Report of the turn benchmark as a Markdown table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.turns.many_workers import SESSIONS, Throughput
from benchmarks.turns.one_worker import CONCURRENT_SESSIONS, MODEL_SECONDS, ConcurrentTurns, IdleUsage, SingleTurns
from benchmarks.turns.statements import select_writes


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Figures of the turn benchmark on one database.

    SQLite has one worker: no takeover, and no stop from another process.

    Attributes:
        database: the name in the table.
        single: successive turns.
        concurrent: concurrent turns.
        without_agent: concurrent turns without agent and reply.
        throughputs: many short turns, one measurement per number of workers.
        takeover: seconds from the kill of a worker until another one runs its turn; None if not measured.
        cancel: the longest time from a stop in another process to the end of its turn, in seconds; None if not
            measured.
    """

    database: str
    single: SingleTurns
    idle: IdleUsage
    concurrent: ConcurrentTurns
    without_agent: ConcurrentTurns
    throughputs: Sequence[Throughput]
    takeover: float | None = None
    cancel: float | None = None


def table(columns: Sequence[TurnFigures]) -> str:
    """Return a Markdown table with a row per figure and a column per database."""
    rows = [_rows(column) for column in columns]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| | " + " | ".join(column.database for column in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | " + " | ".join(row.get(name, "-") for row in rows) + " |" for name in names]
    return "\n".join(lines)


def _rows(figures: TurnFigures) -> dict[str, str]:
    single, statements = figures.single, figures.single.statements
    rows = {
        "accept to start, median": _ms(single.start),
        "accept to start, 99th percentile": _ms(single.start_p99),
        "accept only, median": _ms(single.accept),
    }
    for throughput in figures.throughputs:
        workers = f"{throughput.workers} worker{'s' * (throughput.workers > 1)}"
        name = f"{throughput.turns} turns in {SESSIONS} sessions, {workers}"
        rows[name] = f"{throughput.seconds:.1f} s ({throughput.turns / throughput.seconds:.0f} per second)"
        rows[f"{name}: CPU of the workers per turn"] = _ms(throughput.cpu / throughput.turns)
        rows[f"{name}: event loop, longest delay / busy time"] = (
            f"{_ms(throughput.max_delay)} / {_ms(throughput.max_busy)}"
        )
    for suffix, turns in (("", figures.concurrent), (", no agent and no reply", figures.without_agent)):
        name = f"{CONCURRENT_SESSIONS} sessions of {MODEL_SECONDS:g} s each{suffix}"
        rows[name] = f"{turns.seconds:.1f} s, {turns.peak} at once"
        rows[f"{name}: event loop, longest delay / busy time"] = f"{_ms(turns.max_delay)} / {_ms(turns.max_busy)}"
    return {
        **rows,
        "writing statements per turn": "<br>".join(f"{kind} {number:g}" for kind, number in _list_writes(statements)),
        "of these, without the message, the events, new sessions and heartbeats": f"{_sum_other_writes(statements):g}",
        "all statements per turn, with begin and commit": f"{sum(statements.values()):.1f}",
        "idle: statements per minute, with begin and commit": f"{figures.idle.statements:.0f}",
        "idle: CPU per minute": _ms(figures.idle.cpu),
        "another worker takes over after kill -9": "-" if figures.takeover is None else f"{figures.takeover:.1f} s",
        "stop from another process, longest": "-" if figures.cancel is None else _ms(figures.cancel),
    }


def _list_writes(statements: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return (kind, number) of the writing statements, sorted by kind.

    The numbers are rounded to two digits; statements that round to 0.00 are left out.
    """
    return [(kind, round(number, 2)) for kind, number in select_writes(statements).items() if round(number, 2)]


def _sum_other_writes(statements: Mapping[str, float]) -> float:
    others = ("insert inbox", "insert messages", "insert sessions", "update workers", "delete workers")
    return sum(number for kind, number in _list_writes(statements) if kind not in others)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
