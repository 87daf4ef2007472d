"""Kill the bot at each crash point, and print the results: `make chaos`."""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from tests.chaos import campaign, databases
from tests.chaos.campaign import CaseResult
from tests.chaos.report import table
from tests.chaos.runner import FORKED_MODULE, ScenarioRunner
from tests.processes.fork_server import start_fork_server
from tests.processes.postgres import PostgresServer

#: Number of cases between two progress lines.
PROGRESS_INTERVAL = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--database", choices=["sqlite", "postgres"], action="append", help="only this database; by default both"
    )
    parser.add_argument("--cases", type=int, help="number of random cases for each database; by default all")
    parser.add_argument("--steer", action="store_true", help="let the running turn read the second message")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choice")
    parser.add_argument("--at", default="", help="only crash points with this prefix, such as core/inbox/store.py")
    parser.add_argument(
        "--at-once", type=int, default=campaign.MAX_CONCURRENT, help="maximum number of concurrent cases"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    try:
        failures = [asyncio.run(_run(database, arguments)) for database in arguments.database or ["sqlite", "postgres"]]
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return int(any(failures))


async def _run(database: str, arguments: argparse.Namespace) -> int:
    """Run all crash cases on a database, print the results, return the failure count.

    Ctrl-C ends the run and prints the results of the finished cases.

    Args:
        database: "sqlite" or "postgres".
    """
    results: list[CaseResult] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-chaos-")))
        if database == "sqlite":
            provide_database = await databases.create_sqlite_provider(folder)
        else:
            provide_database = await databases.create_postgres_provider(stack.enter_context(PostgresServer()))
        fork_server = stack.enter_context(start_fork_server(FORKED_MODULE))
        fork_server.warm_up()
        while_running = "steer" if arguments.steer else "queue"
        runner = ScenarioRunner(fork_server, provide_database, folder, WHILE_RUNNING=while_running)
        plan = await campaign.make_plan(runner)
        cases = [
            case for case in (*plan.single_crashes, *plan.double_crashes) if case[-1].point.startswith(arguments.at)
        ]
        if arguments.cases is not None:
            cases = campaign.draw_sample(cases, arguments.cases, arguments.seed)

        def record_result(result: CaseResult) -> None:
            results.append(result)
            _print_result(result)
            if len(results) % PROGRESS_INTERVAL == 0:
                _print(f"{len(results):,} of {len(cases):,}")

        try:
            await campaign.run_cases(runner, cases, record_result, max_concurrent=arguments.at_once)
        finally:
            _print(f"\n{database}:\n\n{table(plan.passages, results)}\n")
    if not any(result.reached for result in results):
        _print("No process reached its crash point, so nothing was tested.")
        return 1
    return sum(bool(result.verdict.findings) for result in results)


def _print_result(result: CaseResult) -> None:
    if result.report:
        _print(result.report)
    elif not result.reached:
        _print(f"not reached: {result.name}")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
