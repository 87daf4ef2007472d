"""Cases of the crash tests: their list, samples of them, and each case's result."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from core.concurrency.tasks import run_concurrently
from tests.chaos.crash_points import module_of
from tests.chaos.crashing_process import Crash
from tests.chaos.runner import ScenarioRunner
from tests.chaos.verdict import CrashVerdict, judge

#: Maximum number of concurrent scenarios.
MAX_CONCURRENT = 4

#: Number of runs that count the passages of each point; cases use the minimum.
COUNTING_RUNS = 2

#: Maximum number of log lines in a report.
MAX_LOG_LINES = 40

#: Module whose most frequent crash point is passed throughout an answer.
ANSWER_MODULE = "channels/answerer.py"

#: Crashes of successive processes; the process after the last crash survives.
Case = tuple[Crash, ...]


@dataclass(frozen=True)
class CaseResult:
    """Result of a case, which is one crash or two crashes in a row.

    Attributes:
        reached: whether each process reached its crash point.
        verdict: the faults in messages, tool calls and rows.
        log: the last log lines of the processes.
    """

    case: Case
    reached: bool
    verdict: CrashVerdict
    log: Sequence[str]

    @property
    def name(self) -> str:
        return ", then ".join(map(str, self.case))

    @property
    def report(self) -> str:
        """Name, findings and log of a failed case as text; "" if the case passed."""
        if not self.verdict.findings:
            return ""
        return "\n  ".join([f"{self.name}:", *self.verdict.findings, *(f"| {line}" for line in self.log)])


@dataclass(frozen=True)
class CrashPlan:
    """All cases of the crash tests.

    A passage is one execution of a crash point.

    Attributes:
        passages: the number of passages of each crash point.
        single_crashes: cases with one crash, in the first or last passage of a point.
        double_crashes: cases with a crash during an answer, and one of the next process at one of its points.
    """

    passages: Mapping[str, int]
    single_crashes: Sequence[Case]
    double_crashes: Sequence[Case]


async def make_plan(runner: ScenarioRunner) -> CrashPlan:
    """Run the scenario without a crash and with one, and return all cases to try.

    Raises:
        AssertionError: the scenario fails without a crash, or with one crash during an answer.
    """
    first = await count_passages(runner)
    during_answer = crash_during_answer(first)
    second = await count_passages(runner, during_answer)
    single = [(crash,) for crash in _list_crashes(first)]
    return CrashPlan({**second, **first}, single, [(during_answer, crash) for crash in _list_crashes(second)])


async def count_passages(runner: ScenarioRunner, *case: Crash) -> dict[str, int]:
    """Return the passages of each crash point in the process after the crashes.

    It runs the scenario `COUNTING_RUNS` times; the minimum counts.

    Args:
        case: the crashes of the former processes.

    Raises:
        AssertionError: the scenario fails.
    """
    outcomes = await asyncio.gather(*(runner.run(*case) for _ in range(COUNTING_RUNS)))
    for outcome in outcomes:
        findings = judge(outcome.evidence, crashed=bool(case)).findings
        assert not findings, "\n".join([*findings, outcome.log])
    common = set.intersection(*(set(outcome.passages) for outcome in outcomes))
    return {point: min(outcome.passages[point] for outcome in outcomes) for point in sorted(common)}


def crash_during_answer(passages: Mapping[str, int]) -> Crash:
    """Return a crash during an answer.

    It is in the middle of the passages of the answerer's most frequent crash point.
    """
    point = max((point for point in passages if module_of(point) == ANSWER_MODULE), key=lambda point: passages[point])
    return Crash(point, passages[point] // 2)


def draw_sample(cases: Sequence[Case], size: int, seed: int) -> list[Case]:
    """Return at most `size` random cases, the same ones for a seed."""
    return random.Random(seed).sample(cases, min(size, len(cases)))


async def run_cases(
    runner: ScenarioRunner,
    cases: Sequence[Case],
    on_result: Callable[[CaseResult], object],
    *,
    max_concurrent: int = MAX_CONCURRENT,
) -> None:
    """Run the scenario once for each case, at most `max_concurrent` at the same time.

    Args:
        on_result: called with each result, in order of completion.
    """

    async def report_case(case: Case) -> None:
        on_result(await _run_case(runner, case))

    await run_concurrently(report_case, cases, max_concurrent)


async def run_until_reached(runner: ScenarioRunner, cases: Sequence[Case], size: int) -> list[CaseResult]:
    """Run cases in order until `size` of them reached their crash points.

    A process may miss its point if the machine is slower or faster than at planning time. Then the next case is run.

    Returns:
        The results of all run cases.
    """
    results, remaining, missing = list[CaseResult](), iter(cases), size
    while missing and (batch := list(islice(remaining, missing))):
        batch_results = list[CaseResult]()
        await run_cases(runner, batch, batch_results.append)
        results += batch_results
        missing -= sum(result.reached for result in batch_results)
    return results


async def _run_case(runner: ScenarioRunner, case: Case) -> CaseResult:
    """Run the scenario with a case's crashes, and return the result.

    The number of passages varies. So a case whose crash was missed is repeated at the last counted passage, and then at
    half of it.
    """
    (result, passages), (*before, crash) = await _run_case_once(runner, case), case
    for divisor in (1, 2):
        count = passages.get(crash.point)
        if result.reached or result.verdict.findings or not count:
            break
        result, passages = await _run_case_once(runner, (*before, Crash(crash.point, max(1, count // divisor))))
    return result


async def _run_case_once(runner: ScenarioRunner, case: Case) -> tuple[CaseResult, Mapping[str, int]]:
    """Run the scenario once with a case's crashes.

    Returns:
        The result, and the number of passages of each crash point in the last process.
    """
    outcome = await runner.run(*case)
    log = outcome.log.splitlines()[-MAX_LOG_LINES:]
    return CaseResult(case, outcome.reached, judge(outcome.evidence), log), outcome.passages


def _list_crashes(passages: Mapping[str, int]) -> list[Crash]:
    return [Crash(point, passage) for point, times in passages.items() for passage in sorted({1, times})]
