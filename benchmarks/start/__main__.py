"""Benchmark of the bot's start: `make bench-start`.

Measures the time from exec to the first answer, and memory. BENCH_RUNS (5) and BENCH_PLATFORM ("slack discord both")
set the runs. The measured programs alternate, so that a slow phase of the machine affects all.
"""

import asyncio
import os
import statistics
from collections.abc import Sequence

from benchmarks.start.contenders import CONTENDERS
from benchmarks.start.measure import StartFigures, measure

#: Contender that the others are compared with.
_BARE = "bare"


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
    is the median of the runs. Except for `bare`, the median ratio to the same run of `bare` follows in brackets.

    Args:
        figures: the runs of each contender, by its name; `bare` is among them, and all have equally many runs.
    """
    lines = []
    for name, runs in figures.items():
        cells = []
        for figure in ("ready", "answered", "cpu", "rss", "pss"):
            values = [getattr(run, figure) for run in runs]
            bare_values = [getattr(run, figure) for run in figures[_BARE]]
            times = statistics.median(value / bare for value, bare in zip(values, bare_values, strict=True))
            digits = 0 if figure in ("rss", "pss") else 2
            median = f"{statistics.median(values):.{digits}f}"
            cells.append(median if name == _BARE else f"{median} ({times:.2f})")
        lines.append(f"| {platform} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def main(platforms: Sequence[str], runs: int) -> None:
    print("| | | ready (s) | answered (s) | CPU (s) | RSS (MB) | PSS (MB) |\n| --- | --- " + "| --- " * 5 + "|")
    for platform in platforms:
        print(table(platform, await measure_contenders(platform, runs)), flush=True)


if __name__ == "__main__":
    wanted = (os.environ.get("BENCH_PLATFORM") or "slack discord both").split()
    asyncio.run(main(wanted, int(os.environ.get("BENCH_RUNS") or 5)))
