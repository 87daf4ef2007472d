"""Benchmark of the bot's start: `make bench-start`.

It measures the time from exec to the first answer, and memory. BENCH_RUNS (5) sets the number of runs, BENCH_PLATFORM
("slack discord both") the platforms. The measured programs alternate, so that a slow phase of the machine affects all.
"""

import asyncio
import os
import statistics
from collections.abc import Sequence

from benchmarks.start.contenders import CONTENDERS, MINIMAL_BOT
from benchmarks.start.measure import StartFigures, measure


async def measure_contenders(platform: str, runs: int) -> dict[str, list[StartFigures]]:
    """Start each contender `runs` times, and return its figures by its name.

    Contenders that do not support the platform are left out. One more start of each, before all others, is not
    measured.

    Args:
        platform: "slack", "discord" or "both".
    """
    contenders = [contender for contender in CONTENDERS if platform in contender.platforms]
    figures: dict[str, list[StartFigures]] = {contender.name: [] for contender in contenders}
    for contender in contenders:  # an unmeasured run fills the disk cache
        await measure(contender, platform, idle=0)
    for _ in range(runs):
        for contender in contenders:
            figures[contender.name].append(await measure(contender, platform))
    return figures


def table(platform: str, figures: dict[str, list[StartFigures]]) -> str:
    """Return Markdown table rows for a platform, one per contender, without a header.

    The columns are platform, contender, and `ready`, `answered`, `cpu`, `rss` and `pss` of `StartFigures`. Each figure
    is the median of the runs. For other contenders than the minimal bot, the median ratio to its same run follows in
    brackets.

    Args:
        figures: the runs of each contender, by its name; the minimal bot is among them, and all have equally many runs.
    """
    lines = []
    for name, runs in figures.items():
        cells = []
        for figure in ("ready", "answered", "cpu", "rss", "pss"):
            values = [getattr(run, figure) for run in runs]
            baseline = [getattr(run, figure) for run in figures[MINIMAL_BOT]]
            ratio = statistics.median(value / base for value, base in zip(values, baseline, strict=True))
            digits = 0 if figure in ("rss", "pss") else 2
            median = f"{statistics.median(values):.{digits}f}"
            cells.append(median if name == MINIMAL_BOT else f"{median} ({ratio:.2f})")
        lines.append(f"| {platform} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def main(platforms: Sequence[str], runs: int) -> None:
    print("| | | ready (s) | first answer (s) | CPU (s) | RSS (MB) | PSS (MB) |\n| --- | --- " + "| --- " * 5 + "|")
    for platform in platforms:
        print(table(platform, await measure_contenders(platform, runs)), flush=True)


if __name__ == "__main__":
    platforms = (os.environ.get("BENCH_PLATFORM") or "slack discord both").split()
    asyncio.run(main(platforms, int(os.environ.get("BENCH_RUNS") or 5)))
