"""Report of a load test as Markdown tables."""

from collections.abc import Mapping, Sequence
from math import isinf

from benchmarks.load.run import LoadResult
from benchmarks.load.timing import Phase, Wait
from benchmarks.replies.measure import percentile
from benchmarks.soak import report as soak

#: Name of each phase in the table.
PHASE_LABELS: Mapping[Phase, str] = {
    "other": "at other times",
    "during": "during a deploy",
    "after": "in the minute after",
}


def table(result: LoadResult, speed: float) -> str:
    """Return the message counts and the users' waits as Markdown tables.

    Args:
        speed: platform seconds in a real second; the tables show platform seconds.
    """
    longest = f"The longest deploy took {max(result.deploys, default=0):.1f} s; the next table has platform seconds."
    return f"{soak.table(result.outcome)} {longest}\n\n{_format_waits(result.waits, speed)}"


def faults(result: LoadResult) -> list[str]:
    """Return a line of text for each fault of the load test; empty if it succeeded.

    A run without deploys and a session without messages are faults as well.
    """
    no_deploy = [] if result.deploys else ["no deploy took place: set EVERY below MINUTES"]
    silent = [
        f"{session.platform} s{session.number}: no message was sent"
        for session, _ in result.outcome.verdicts
        if not session.sent
    ]
    return [*soak.faults(result.outcome), *result.reset_faults, *no_deploy, *silent]


def _format_waits(waits: Sequence[Wait], speed: float) -> str:
    lines = [
        "| | messages | first word, median | p99 | whole answer, median | p99 |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for platform in sorted({wait.platform for wait in waits}):
        for phase, label in PHASE_LABELS.items():
            selected = [wait for wait in waits if (wait.platform, wait.phase) == (platform, phase)]
            if selected:
                columns = [wait.first for wait in selected], [wait.complete for wait in selected]
                figures = [
                    _format_seconds(percentile(times, share) * speed) for times in columns for share in (0.5, 0.99)
                ]
                lines.append(f"| {platform}, {label} | {len(selected):,} | {' | '.join(figures)} |")
    return "\n".join(lines)


def _format_seconds(seconds: float) -> str:
    return "never" if isinf(seconds) else f"{seconds:.1f} s"
