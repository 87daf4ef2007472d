"""Load test with many users and regular deploys: `make bench-load`.

By default 500 sessions for half an hour, with a deploy every five minutes. Environment variables:

    BENCH_DATABASE              "sqlite" or "postgres": only this database
    SESSIONS, MINUTES           number of sessions and duration
    EVERY                       minutes between two deploys
    PAUSE                       mean minutes between an answer and the next question
    SPEED                       platform seconds in a real second
    SEED                        seed of all random choices
    KEEP                        folder for the logs
"""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import get_args

from benchmarks.load.report import faults, table
from benchmarks.load.run import DatabaseKind, LoadConfig, run_load


def read_config() -> LoadConfig:
    usual = LoadConfig()
    return LoadConfig(
        sessions=int(os.environ.get("SESSIONS") or usual.sessions),
        minutes=float(os.environ.get("MINUTES") or usual.minutes),
        deploy_interval=float(os.environ.get("EVERY") or usual.deploy_interval),
        pause=float(os.environ.get("PAUSE") or usual.pause),
        seed=int(os.environ.get("SEED") or usual.seed),
        speed=float(os.environ.get("SPEED") or usual.speed),
    )


def main() -> None:
    log_folder, found = os.environ.get("KEEP"), list[str]()
    databases = [database for database in get_args(DatabaseKind) if os.environ.get("BENCH_DATABASE", "") in database]
    if not databases:
        sys.exit(f"BENCH_DATABASE: use one of {', '.join(get_args(DatabaseKind))}")
    for database in databases:
        folder = Path(log_folder, database).absolute() if log_folder else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        result = asyncio.run(run_load(read_config(), database, folder))
        wrong = faults(result)
        print(f"**{database}**\n\n{table(result, read_config().speed)}\n", *wrong, sep="\n", flush=True)
        found += wrong
    sys.exit(bool(found))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
