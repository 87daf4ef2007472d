"""Load test with many users and regular deploys: `make bench-load`.

It runs 500 sessions for half an hour, with a deploy every five minutes. Environment variables change that:

    BENCH_DATABASE              "sqlite" or "postgres": only this database
    SESSIONS                    number of sessions
    MINUTES                     duration in platform minutes
    EVERY                       platform minutes between two deploys
    PAUSE                       mean platform minutes between an answer and the next message
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
    defaults = LoadConfig()
    return LoadConfig(
        sessions=int(os.environ.get("SESSIONS") or defaults.sessions),
        minutes=float(os.environ.get("MINUTES") or defaults.minutes),
        deploy_interval=float(os.environ.get("EVERY") or defaults.deploy_interval),
        pause=float(os.environ.get("PAUSE") or defaults.pause),
        seed=int(os.environ.get("SEED") or defaults.seed),
        speed=float(os.environ.get("SPEED") or defaults.speed),
    )


def main() -> None:
    log_folder, all_faults = os.environ.get("KEEP"), list[str]()
    databases = [database for database in get_args(DatabaseKind) if os.environ.get("BENCH_DATABASE", "") in database]
    if not databases:
        sys.exit(f"BENCH_DATABASE: use one of {', '.join(get_args(DatabaseKind))}")
    for database in databases:
        folder = Path(log_folder, database).absolute() if log_folder else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        result = asyncio.run(run_load(read_config(), database, folder))
        found = faults(result)
        print(f"**{database}**\n\n{table(result, read_config().speed)}\n", *found, sep="\n", flush=True)
        all_faults += found
    sys.exit(bool(all_faults))


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("BENCH_LOG", "CRITICAL"))
    main()
