"""How good replies are while they stream and when they end, beside the others': `make bench-replies`.

BENCH_SPEED (4), BENCH_REPLIES ("1 10 50 200"), BENCH_CHANNELS (how many channels, for all loads), BENCH_PLATFORM
("slack", "discord"), BENCH_CONTENDER (a part of a name), BENCH_ENDING ("together", "in turn") and BENCH_AGAIN (to
measure what has been measured already) narrow it. Each cell is kept in a file as soon as it is measured.
"""

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.replies.cell import Cell, measure
from benchmarks.replies.contender import Contender
from benchmarks.replies.contenders import CONTENDERS
from benchmarks.replies.load import Ending, Load
from benchmarks.replies.report import line, table

#: Over how many channels so many replies are spread.
CHANNELS = {1: 1, 10: 5, 50: 10, 200: 20}

KEPT = Path(".parley/bench-replies")


def loads() -> Iterator[Load]:
    speed = float(os.environ.get("BENCH_SPEED") or 4)
    wanted, spread = os.environ.get("BENCH_REPLIES"), os.environ.get("BENCH_CHANNELS")
    for replies in [int(number) for number in wanted.split()] if wanted else CHANNELS:
        channels = int(spread) if spread else CHANNELS.get(replies, max(1, replies // 10))
        for ending in Ending:
            if os.environ.get("BENCH_ENDING", "") in ending and (replies > 1 or ending is Ending.TOGETHER):
                yield Load(replies, channels, ending, speed)


def contenders() -> Iterator[Contender]:
    for contender in CONTENDERS:
        is_asked = os.environ.get("BENCH_CONTENDER", "").lower() in contender.name.lower()
        if is_asked and os.environ.get("BENCH_PLATFORM", "") in contender.platform:
            yield contender


def kept(contender: Contender, load: Load) -> Path:
    name = f"{contender.platform} {contender.name} {load.replies} {load.channels} {load.ending} {load.speed:g}"
    return KEPT / f"{name.replace(' ', '-')}.json"


def cell_of(contender: Contender, load: Load) -> Cell:
    """What is kept of it, or else measured now, in an event loop of its own."""
    file = kept(contender, load)
    if file.exists() and not os.environ.get("BENCH_AGAIN"):
        return Cell(**json.loads(file.read_text()))
    cell = asyncio.run(measure(contender, load))
    file.write_text(json.dumps(cell.as_json(), indent=1))
    return cell


def main() -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    cells = []
    for load in loads():
        for contender in contenders():
            cells.append(cell_of(contender, load))
            print(line(cells[-1]), flush=True)
    print()
    print(table(cells))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
