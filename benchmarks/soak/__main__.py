"""Soak test of thousands of turns with faults: `make soak [TURNS=10000]`.

Environment variables:

    TURNS               number of messages to the bot (10000)
    SESSIONS            number of sessions (a twentieth of TURNS)
    AT_ONCE             maximum number of sessions with a waiting user (40)
    EVERY               messages between two faults (25)
    SPEED               factor by which the rate limiters run faster (50)
    SEED                seed of all random choices (1)
    KEEP                folder for the logs
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

from benchmarks.soak.report import faults, table
from benchmarks.soak.run import SoakConfig, run_soak


def read_config() -> SoakConfig:
    defaults = SoakConfig()
    turns = int(os.environ.get("TURNS") or defaults.messages)
    return SoakConfig(
        messages=turns,
        sessions=int(os.environ.get("SESSIONS") or max(2, turns // 20)),
        concurrent_users=int(os.environ.get("AT_ONCE") or defaults.concurrent_users),
        messages_per_fault=int(os.environ.get("EVERY") or defaults.messages_per_fault),
        seed=int(os.environ.get("SEED") or defaults.seed),
        speed=float(os.environ.get("SPEED") or defaults.speed),
    )


def main() -> None:
    log_folder = os.environ.get("KEEP")
    if log_folder:
        Path(log_folder).mkdir(parents=True, exist_ok=True)
    outcome = asyncio.run(run_soak(read_config(), Path(log_folder) if log_folder else None))
    print(table(outcome))
    found = faults(outcome)
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
