"""Result of a soak as a Markdown table."""

from collections.abc import Sequence

from benchmarks.soak.outcome import Outcome
from benchmarks.soak.script import Verdict
from benchmarks.soak.users import Session


def table(outcome: Outcome) -> str:
    platforms = sorted({session.platform for session, _ in outcome.verdicts})
    columns = [[pair for pair in outcome.verdicts if pair[0].platform == platform] for platform in platforms]
    made = ", ".join(f"{kind} {number}" for kind, number in sorted(outcome.made.items()))
    lines = ["| | " + " | ".join(platforms) + " |", "| --- |" + " ---: |" * len(platforms)]
    for name, count in COUNTS.items():
        counts = (count(column, outcome) for column in columns)
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in counts) + " |")
    return "\n".join(
        [
            *lines,
            "",
            f"Seed {outcome.seed}, {outcome.seconds:.0f} s. Trouble: {made}.",
            f"Histories that were not what was said: {len(outcome.histories)}. Bots that ended by themselves: "
            f"{outcome.deaths}. Turns and messages left: {outcome.left}. Messages where nobody has asked: "
            f"{outcome.astray}.",
        ]
    )


def faults(outcome: Outcome) -> list[str]:
    """Return all faults in words."""
    told = [f"history: {fault}" for fault in outcome.histories]
    for session, verdict in outcome.verdicts:
        for name in ("lost", "doubled", "wrong"):
            for what in getattr(verdict, name):
                if what not in outcome.unheard:
                    told.append(f"{session.platform} s{session.number}: {name}: {what[:300]}")
        if verdict.unfinished:
            told.append(f"{session.platform} s{session.number}: unfinished messages: {verdict.unfinished}")
        told += [f"{session.platform} s{session.number}: nobody heard: {id_}" for id_ in _unheard_in(session, outcome)]
        for older, newer in _out_of_order(verdict, outcome):
            told.append(f"{session.platform} s{session.number}: out of order: {older} behind {newer}")
    if outcome.left:
        told.append(f"{outcome.left} turns and messages are left")
    if outcome.astray:
        told.append(f"{outcome.astray} messages stand where nobody has asked")
    return [*told, *(["a bot ended by itself"] * outcome.deaths)]


def _unheard_in(session: Session, outcome: Outcome) -> list[str]:
    """Return the session's messages that no bot has accepted."""
    return [id_ for id_ in session.said if id_ in outcome.unheard]


def _out_of_order(verdict: Verdict, outcome: Outcome) -> list[tuple[str, str]]:
    """Return the disordered messages without the late ones."""
    return [pair for pair in verdict.disordered if pair[0] not in outcome.late]


_Column = Sequence[tuple[Session, Verdict]]


def _said(column: _Column, _outcome: Outcome) -> int:
    return sum(len(session.said) for session, _ in column)


def _sessions(column: _Column, _outcome: Outcome) -> int:
    return len(column)


def _replies(column: _Column, _outcome: Outcome) -> int:
    return sum(verdict.replies for _, verdict in column)


def _lost(column: _Column, outcome: Outcome) -> int:
    return sum(len(set(verdict.lost) - outcome.unheard) for _, verdict in column)


def _unheard(column: _Column, outcome: Outcome) -> int:
    return sum(len(outcome.unheard.intersection(verdict.lost)) for _, verdict in column)


def _doubled(column: _Column, _outcome: Outcome) -> int:
    return sum(len(verdict.doubled) for _, verdict in column)


def _disordered(column: _Column, outcome: Outcome) -> int:
    return sum(bool(_out_of_order(verdict, outcome)) for _, verdict in column)


def _late(column: _Column, outcome: Outcome) -> int:
    return sum(len({older for older, _ in verdict.disordered} & outcome.late) for _, verdict in column)


def _wrong(column: _Column, _outcome: Outcome) -> int:
    return sum(len(verdict.wrong) for _, verdict in column)


def _unfinished(column: _Column, _outcome: Outcome) -> int:
    return sum(verdict.unfinished for _, verdict in column)


COUNTS = {
    "sessions": _sessions,
    "messages": _said,
    "answers": _replies,
    "lost": _lost,
    "said while nobody listened": _unheard,
    "doubled": _doubled,
    "sessions out of order": _disordered,
    "heard too late": _late,
    "wrong texts": _wrong,
    "unfinished messages": _unfinished,
}
