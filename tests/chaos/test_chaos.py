"""Crash tests: a process killed at any await loses, doubles and cuts no message.

These tests use a random sample of the cases; `make chaos` runs all.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import campaign, databases
from tests.chaos.campaign import CaseResult
from tests.chaos.crash_points import module_of
from tests.chaos.report import table
from tests.chaos.runner import DatabaseProvider, ScenarioRunner
from tests.chaos.verdict import judge
from tests.processes.crash_runs import fork_server, provide_database
from tests.processes.fork_server import ForkServer

__all__ = ["fork_server", "provide_database"]

#: Number of cases per database: with one crash, and with two.
SINGLE_CRASHES, DOUBLE_CRASHES = 10, 2
SEED = 5

STEERING_MODULES = {"core/turns/steering.py", "channels/intake/steering.py"}

pytestmark = pytest.mark.timeout(600)  # on an overloaded machine


async def test_each_message_has_one_outcome_at_every_crash_point(
    fork_server: ForkServer,
    provide_database: DatabaseProvider,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    runner = ScenarioRunner(fork_server, provide_database, tmp_path)
    plan = await campaign.make_plan(runner)
    results: list[CaseResult] = []
    for cases, size in ((plan.single_crashes, SINGLE_CRASHES), (plan.double_crashes, DOUBLE_CRASHES)):
        results += await campaign.run_until_reached(runner, campaign.draw_sample(cases, 2 * size, SEED), size)
    record_property("table", table(plan.passages, results))
    assert "\n".join(result.report for result in results if result.report) == ""
    assert sum(result.reached for result in results) == SINGLE_CRASHES + DOUBLE_CRASHES


async def test_a_running_turn_reads_a_message_once_at_every_crash_point_of_steering(
    fork_server: ForkServer, provide_database: DatabaseProvider, tmp_path: Path
) -> None:
    runner = ScenarioRunner(fork_server, provide_database, tmp_path, WHILE_RUNNING="steer")
    plan = await campaign.make_plan(runner)
    cases = [case for case in plan.single_crashes if module_of(case[0].point) in STEERING_MODULES]
    assert {module_of(case[0].point) for case in cases} == STEERING_MODULES
    results = await campaign.run_until_reached(runner, cases, len(cases))
    assert "\n".join(result.report for result in results if result.report) == ""
    assert any(result.reached for result in results)


async def test_a_turn_out_of_attempts_ends_in_an_apology_and_the_next_one_is_answered(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    runner = ScenarioRunner(
        fork_server, await databases.create_sqlite_provider(tmp_path), tmp_path, TURN_MAX_ATTEMPTS="1"
    )
    outcome = await runner.run(campaign.crash_during_answer(await campaign.count_passages(runner)))
    verdict = judge(outcome.evidence)
    assert verdict.findings == []
    assert set(verdict.outcomes.values()) == {"answered", "apology"}
