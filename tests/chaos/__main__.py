"""`python -m tests.chaos`, or `make chaos`: kills the program at every crash point and prints the results."""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from sandbox.postgres import PostgresSandbox
from tests.chaos import campaign, databases
from tests.chaos.campaign import CaseResult
from tests.chaos.platforms import FORKED_MODULE, ScenarioRunner
from tests.chaos.report import table
from tests.processes.fork_server import start_fork_server

#: Number of cases between two progress lines.
PROGRESS_INTERVAL = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--cases", type=int, help="how many, by chance; all if not given")
    parser.add_argument("--seed", type=int, default=1, help="which, if not all")
    parser.add_argument("--at", default="", help="only at points whose name begins so, as core/inbox/store.py:60")
    parser.add_argument(
        "--at-once", type=int, default=campaign.MAX_CONCURRENT, help="how many at once: they mostly wait"
    )
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    try:
        wrong = [asyncio.run(_run(database, given)) for database in given.database or ["sqlite", "postgres"]]
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return int(any(wrong))


async def _run(database: str, given: argparse.Namespace) -> int:
    """Run the cases and return the number of failures; Ctrl-C reports the finished ones."""
    tried: list[CaseResult] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-chaos-")))
        if database == "sqlite":
            lend = await databases.lend_sqlite(folder)
        else:
            lend = await databases.lend_postgres(stack.enter_context(PostgresSandbox()))
        fork_server = stack.enter_context(start_fork_server(FORKED_MODULE))
        fork_server.warm_up()
        stage = ScenarioRunner(fork_server, lend, folder)
        plan = await campaign.make_plan(stage)
        cases = [case for case in (*plan.single_crashes, *plan.double_crashes) if case[-1].point.startswith(given.at)]
        if given.cases is not None:
            cases = campaign.draw_sample(cases, given.cases, given.seed)

        def tell(one: CaseResult) -> None:
            tried.append(one)
            _tell(one)
            if len(tried) % PROGRESS_INTERVAL == 0:
                _say(f"{len(tried):,} of {len(cases):,}")

        try:
            await campaign.run_cases(stage, cases, tell, at_once=given.at_once)
        finally:
            _say(f"\n{database}:\n\n{table(plan.passages, tried)}\n")
    if not any(one.reached for one in tried):
        _say("No process has died: that shows nothing.")
        return 1
    return sum(bool(one.verdict.findings) for one in tried)


def _tell(tried: CaseResult) -> None:
    if tried.report:
        _say(tried.report)
    elif not tried.reached:
        _say(f"not reached: {tried.name}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
