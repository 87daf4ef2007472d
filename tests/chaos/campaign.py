"""Campaigns: the list of crash cases, samples of it, and the result of each case."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from core.concurrency.tasks import run_concurrently
from tests.chaos.crash_points import module_of
from tests.chaos.crashing_process import Crash
from tests.chaos.platforms import ScenarioRunner
from tests.chaos.verdict import CrashVerdict, judge

#: Maximum number of concurrent scenarios.
MAX_CONCURRENT = 4

#: Runs without a crash that count the passages of each point; cases use the minimum.
COUNTING_RUNS = 2

#: Maximum number of log lines in a report.
MAX_LOG_LINES = 40

#: Module whose most frequent point is passed all through an answer.
ANSWER_MODULE = "channels/answerer.py"

#: Crashes of one process after the other; the process after the last one survives.
Case = tuple[Crash, ...]


@dataclass(frozen=True)
class CaseResult:
    """Result of a case.

    Attributes:
        reached: whether each process reached its crash point.
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
        """Return the details of a failure; empty if the case passed."""
        if not self.verdict.findings:
            return ""
        return "\n  ".join([f"{self.name}:", *self.verdict.findings, *(f"| {line}" for line in self.log)])


@dataclass(frozen=True)
class CrashPlan:
    """All cases.

    Attributes:
        passages: number of passages of each point.
        once: cases with one crash, in the first or last passage of a point.
        twice: cases with a crash during an answer, and one of the next process at one of its points.
    """

    passages: Mapping[str, int]
    single_crashes: Sequence[Case]
    double_crashes: Sequence[Case]


async def make_plan(stage: ScenarioRunner) -> CrashPlan:
    """Run the scenario without a crash, and return the possible cases.

    Raises:
        AssertionError: the scenario fails without a crash, or with one crash during an answer.
    """
    first = await count_passages(stage)
    middle = crash_during_answer(first)
    second = await count_passages(stage, middle)
    once = [(crash,) for crash in _list_crashes(first)]
    return CrashPlan({**second, **first}, once, [(middle, crash) for crash in _list_crashes(second)])


async def count_passages(stage: ScenarioRunner, *case: Crash) -> dict[str, int]:
    """Return the number of passages of each point by the process after the last crash.

    Raises:
        AssertionError: the scenario fails.
    """
    outcomes = await asyncio.gather(*(stage.play(*case) for _ in range(COUNTING_RUNS)))
    for outcome in outcomes:
        findings = judge(outcome.evidence, crashed=bool(case)).findings
        assert not findings, "\n".join([*findings, outcome.log])
    common = set.intersection(*(set(outcome.passages) for outcome in outcomes))
    return {point: min(outcome.passages[point] for outcome in outcomes) for point in sorted(common)}


def crash_during_answer(passages: Mapping[str, int]) -> Crash:
    """Return a crash during an answer."""
    often = max((point for point in passages if module_of(point) == ANSWER_MODULE), key=lambda point: passages[point])
    return Crash(often, passages[often] // 2)


def draw_sample(of: Sequence[Case], size: int, seed: int) -> list[Case]:
    return random.Random(seed).sample(of, min(size, len(of)))


async def run_cases(
    stage: ScenarioRunner, cases: Sequence[Case], tell: Callable[[CaseResult], object], *, at_once: int = MAX_CONCURRENT
) -> None:
    """Play the scenario with each case, some of them concurrently.

    Args:
        tell: called with each result.
    """

    async def play(case: Case) -> None:
        tell(await _run_case(stage, case))

    await run_concurrently(play, cases, at_once)


async def run_until_reached(stage: ScenarioRunner, cases: Sequence[Case], size: int) -> list[CaseResult]:
    """Play the scenario until `size` cases were reached.

    On a slower or faster machine than at planning time a process may miss its point: then the next case is played.
    """
    tried, ahead, missing = list[CaseResult](), iter(cases), size
    while missing and (some := list(islice(ahead, missing))):
        done = list[CaseResult]()
        await run_cases(stage, some, done.append)
        tried += done
        missing -= sum(one.reached for one in done)
    return tried


async def _run_case(stage: ScenarioRunner, case: Case) -> CaseResult:
    """Play one case.

    The number of passages varies: a missed crash is repeated at the last counted passage, and then halfway.
    """
    (tried, seen), (*before, crash) = await _play_case(stage, case), case
    for share in (1, 2):
        passages = seen.get(crash.point)
        if tried.reached or tried.verdict.findings or not passages:
            break
        tried, seen = await _play_case(stage, (*before, Crash(crash.point, max(1, passages // share))))
    return tried


async def _play_case(stage: ScenarioRunner, case: Case) -> tuple[CaseResult, Mapping[str, int]]:
    """Return the result of the case and the passages of its last process."""
    outcome = await stage.play(*case)
    log = outcome.log.splitlines()[-MAX_LOG_LINES:]
    return CaseResult(case, outcome.reached, judge(outcome.evidence), log), outcome.passages


def _list_crashes(passages: Mapping[str, int]) -> list[Crash]:
    return [Crash(point, passage) for point, times in passages.items() for passage in sorted({1, times})]
