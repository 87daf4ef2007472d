"""Benchmark of Parley's replies beside other bots: `make bench-replies`.

It measures the age of the shown text and the end of the replies. A cell is one bot (contender) under one load.
Environment variables select the cells:

    BENCH_SPEED       platform seconds in a real second (4)
    BENCH_REPLIES     numbers of concurrent replies ("1 10 50 200")
    BENCH_CHANNELS    number of channels, for all loads
    BENCH_PLATFORM    "slack" or "discord"
    BENCH_CONTENDER   a part of a contender's name
    BENCH_ENDING      "together" or "in turn"
    BENCH_AGAIN       if set, saved cells are measured again

The program saves each measured cell at once. At the end it prints and plots all saved cells, also of earlier runs.
`docs_page` writes them to the docs.
"""

import asyncio
import logging
import os
from collections.abc import Iterator

from benchmarks.replies import results
from benchmarks.replies.cell import Cell, measure
from benchmarks.replies.contenders import parley
from benchmarks.replies.contenders.base import ReplyContender
from benchmarks.replies.contenders.registry import CONTENDERS
from benchmarks.replies.cost import measure_delta_cost
from benchmarks.replies.load import CHANNEL_COUNTS, Ending, Load
from benchmarks.replies.plot import plot
from benchmarks.replies.report import format_line, table


def list_loads() -> Iterator[Load]:
    speed = float(os.environ.get("BENCH_SPEED") or 4)
    replies_setting, channels_setting = os.environ.get("BENCH_REPLIES"), os.environ.get("BENCH_CHANNELS")
    for replies in [int(number) for number in replies_setting.split()] if replies_setting else CHANNEL_COUNTS:
        channels = int(channels_setting) if channels_setting else CHANNEL_COUNTS.get(replies, max(1, replies // 10))
        for ending in Ending:
            if os.environ.get("BENCH_ENDING", "") in ending and (replies > 1 or ending is Ending.SIMULTANEOUS):
                yield Load(replies, channels, ending, speed)


def list_contenders(load: Load) -> Iterator[ReplyContender]:
    for contender in CONTENDERS:
        is_selected = os.environ.get("BENCH_CONTENDER", "").lower() in contender.name.lower()
        if is_selected and contender.is_measurable(load) and os.environ.get("BENCH_PLATFORM", "") in contender.platform:
            yield contender


def get_or_measure_cell(contender: ReplyContender, load: Load) -> Cell:
    """Return the saved figures of a contender under a load, or measure and save them.

    Each measurement has its own event loop. With BENCH_AGAIN set, saved figures are ignored.
    """
    cell = None if os.environ.get("BENCH_AGAIN") else results.find_cell(contender, load)
    if cell is None:
        cell = asyncio.run(measure(contender, load))
        results.save_cell(contender, load, cell)
    return cell


def main() -> None:
    for load in list_loads():
        for contender in list_contenders(load):
            print(format_line(get_or_measure_cell(contender, load)), flush=True)
    if os.environ.get("BENCH_CONTENDER", "").lower() in parley.NAME.lower():
        print(f"\nA delta costs Parley {asyncio.run(measure_delta_cost()) * 1e6:.0f} µs of CPU in the reply path.")
    cells = results.list_cells()
    print(f"\n{table(cells)}")
    default_cells = [cell for cell in cells if cell.channels == CHANNEL_COUNTS.get(cell.replies)]
    for ending in Ending:
        file = results.RESULTS_FOLDER / f"replies-{ending.replace(' ', '-')}.svg"
        file.write_text(plot(default_cells, ending))
        print(f"\n{file}")


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
