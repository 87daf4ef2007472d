"""Report of a soak test as a Markdown table."""

from collections.abc import Sequence

from benchmarks.soak.outcome import Outcome
from benchmarks.soak.script import SessionVerdict
from benchmarks.soak.users import UserSession


def table(outcome: Outcome) -> str:
    """Return the message counts per platform as a Markdown table, then totals as text."""
    platforms = sorted({session.platform for session, _ in outcome.verdicts})
    columns = [[pair for pair in outcome.verdicts if pair[0].platform == platform] for platform in platforms]
    counts = ", ".join(f"{kind} {number}" for kind, number in sorted(outcome.counts.items()))
    lines = ["| | " + " | ".join(platforms) + " |", "| --- |" + " ---: |" * len(platforms)]
    for name, count in COUNTS.items():
        numbers = (count(column, outcome) for column in columns)
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(
        [
            *lines,
            "",
            f"Seed {outcome.seed}, {outcome.seconds:.0f} s. Counts: {counts}.",
            f"Wrong histories: {len(outcome.history_faults)}. Unexpected exits of a bot: {outcome.unexpected_exits}. "
            f"Unfinished turns and messages: {outcome.unfinished_work}. "
            f"Bot messages outside all sessions: {outcome.orphan_count}.",
        ]
    )


def faults(outcome: Outcome) -> list[str]:
    """Return a line of text for each fault; an empty list if the soak test succeeded."""
    found = [f"history: {fault}" for fault in outcome.history_faults]
    for session, verdict in outcome.verdicts:
        for name in ("lost", "doubled", "wrong"):
            for text in getattr(verdict, name):
                if text not in outcome.unreceived:
                    found.append(f"{session.platform} s{session.number}: {name}: {text[:300]}")
        if verdict.unfinished:
            found.append(f"{session.platform} s{session.number}: unfinished messages: {verdict.unfinished}")
        found += [
            f"{session.platform} s{session.number}: not received: {unreceived}"
            for unreceived in _find_unreceived(session, outcome)
        ]
        for older, newer in _find_out_of_order(verdict, outcome):
            found.append(f"{session.platform} s{session.number}: out of order: {older} after {newer}")
    if outcome.unfinished_work:
        found.append(f"{outcome.unfinished_work} turns and messages are unfinished")
    if outcome.orphan_count:
        found.append(f"{outcome.orphan_count} bot messages outside all sessions")
    return [*found, *(["a bot exited unexpectedly"] * outcome.unexpected_exits)]


def _find_unreceived(session: UserSession, outcome: Outcome) -> list[str]:
    """Return the names of the session's messages that no bot has accepted."""
    return [name for name in session.sent if name in outcome.unreceived]


def _find_out_of_order(verdict: SessionVerdict, outcome: Outcome) -> list[tuple[str, str]]:
    """Return the (older, newer) pairs of names whose answers are in the wrong order.

    Pairs whose older message was late (see `Outcome.late`) are left out.
    """
    return [pair for pair in verdict.out_of_order if pair[0] not in outcome.late]


_Column = Sequence[tuple[UserSession, SessionVerdict]]


def _count_messages(column: _Column, _outcome: Outcome) -> int:
    return sum(len(session.sent) for session, _ in column)


def _count_sessions(column: _Column, _outcome: Outcome) -> int:
    return len(column)


def _count_replies(column: _Column, _outcome: Outcome) -> int:
    return sum(verdict.replies for _, verdict in column)


def _count_lost(column: _Column, outcome: Outcome) -> int:
    return sum(len(set(verdict.lost) - outcome.unreceived) for _, verdict in column)


def _count_unreceived(column: _Column, outcome: Outcome) -> int:
    return sum(len(outcome.unreceived.intersection(verdict.lost)) for _, verdict in column)


def _count_doubled(column: _Column, _outcome: Outcome) -> int:
    return sum(len(verdict.doubled) for _, verdict in column)


def _count_out_of_order(column: _Column, outcome: Outcome) -> int:
    return sum(bool(_find_out_of_order(verdict, outcome)) for _, verdict in column)


def _count_late(column: _Column, outcome: Outcome) -> int:
    return sum(len({older for older, _ in verdict.out_of_order} & outcome.late) for _, verdict in column)


def _count_wrong(column: _Column, _outcome: Outcome) -> int:
    return sum(len(verdict.wrong) for _, verdict in column)


def _count_unfinished(column: _Column, _outcome: Outcome) -> int:
    return sum(verdict.unfinished for _, verdict in column)


COUNTS = {
    "sessions": _count_sessions,
    "messages": _count_messages,
    "answers": _count_replies,
    "lost": _count_lost,
    "not received": _count_unreceived,
    "doubled": _count_doubled,
    "sessions out of order": _count_out_of_order,
    "delivered late": _count_late,
    "wrong texts": _count_wrong,
    "unfinished messages": _count_unfinished,
}
