"""Soak test: thousands of turns with faults: `make soak [TURNS=10000]`.

TURNS (messages to the bot), SESSIONS, SEED, EVERY (messages between two faults), AT_ONCE (sessions with a waiting user)
and SPEED (of the rate limiters) set the soak; KEEP names a folder for the logs.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

from benchmarks.soak.report import faults, table
from benchmarks.soak.run import Load, soak


def load() -> Load:
    usual = Load()
    turns = int(os.environ.get("TURNS") or usual.messages)
    return Load(
        messages=turns,
        sessions=int(os.environ.get("SESSIONS") or max(2, turns // 20)),
        at_once=int(os.environ.get("AT_ONCE") or usual.at_once),
        every=int(os.environ.get("EVERY") or usual.every),
        seed=int(os.environ.get("SEED") or usual.seed),
        speed=float(os.environ.get("SPEED") or usual.speed),
    )


def main() -> None:
    keep = os.environ.get("KEEP")
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
    outcome = asyncio.run(soak(load(), Path(keep) if keep else None))
    print(table(outcome))
    found = faults(outcome)
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
