"""How good replies are while they stream and when they end, beside the others': `make bench-replies`.

BENCH_SPEED (4), BENCH_REPLIES ("1 10 50 200"), BENCH_CHANNELS (how many channels, for all loads), BENCH_PLATFORM
("slack", "discord"), BENCH_CONTENDER (a part of a name), BENCH_ENDING ("together", "in turn") and BENCH_AGAIN (to
measure what has been measured already) narrow it. Each cell is kept as soon as it is measured.

In the end it prints all cells that are kept, of this run and of those before, and draws them. `page` puts them into the
documentation.
"""

import asyncio
import logging
import os
from collections.abc import Iterator

from benchmarks.replies import results as kept
from benchmarks.replies.cell import Cell, measure
from benchmarks.replies.contenders import parley
from benchmarks.replies.contenders.base import Contender
from benchmarks.replies.contenders.registry import CONTENDERS
from benchmarks.replies.cost import delta_cost
from benchmarks.replies.load import CHANNELS, Ending, Load
from benchmarks.replies.plot import plot
from benchmarks.replies.report import line, table


def loads() -> Iterator[Load]:
    speed = float(os.environ.get("BENCH_SPEED") or 4)
    wanted, spread = os.environ.get("BENCH_REPLIES"), os.environ.get("BENCH_CHANNELS")
    for replies in [int(number) for number in wanted.split()] if wanted else CHANNELS:
        channels = int(spread) if spread else CHANNELS.get(replies, max(1, replies // 10))
        for ending in Ending:
            if os.environ.get("BENCH_ENDING", "") in ending and (replies > 1 or ending is Ending.TOGETHER):
                yield Load(replies, channels, ending, speed)


def contenders(load: Load) -> Iterator[Contender]:
    for contender in CONTENDERS:
        is_asked = os.environ.get("BENCH_CONTENDER", "").lower() in contender.name.lower()
        if is_asked and contender.fits(load) and os.environ.get("BENCH_PLATFORM", "") in contender.platform:
            yield contender


def cell_of(contender: Contender, load: Load) -> Cell:
    """What is kept of it, or else measured now, in an event loop of its own."""
    cell = None if os.environ.get("BENCH_AGAIN") else kept.find(contender, load)
    if cell is None:
        cell = asyncio.run(measure(contender, load))
        kept.keep(contender, load, cell)
    return cell


def main() -> None:
    for load in loads():
        for contender in contenders(load):
            print(line(cell_of(contender, load)), flush=True)
    if os.environ.get("BENCH_CONTENDER", "").lower() in parley.NAME.lower():
        print(f"\nA delta costs Parley {asyncio.run(delta_cost()) * 1e6:.0f} µs in the reply path.")
    cells = kept.everything()
    print(f"\n{table(cells)}")
    spread = [cell for cell in cells if cell.channels == CHANNELS.get(cell.replies)]
    for ending in Ending:
        file = kept.FOLDER / f"replies-{ending.replace(' ', '-')}.svg"
        file.write_text(plot(spread, ending))
        print(f"\n{file}")


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
