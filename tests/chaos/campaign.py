"""Many crashes: which there are, a sample of them, and what came of each."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from core.concurrency.tasks import run_concurrently
from tests.chaos.crash_points import module_of
from tests.chaos.crashing_process import Crash
from tests.chaos.platforms import Stage
from tests.chaos.verdict import Verdict, judge

#: How many scenarios are played at once.
AT_ONCE = 4

#: How many runs without a crash tell how often each point is come by: the least is what a crash can count on.
COUNTED = 2

#: How many lines of a log tell what went wrong.
MOST_LINES = 40

#: Where a point that is come by most often is come by all through an answer.
ANSWER = "channels/answerer.py"

#: The places at which one process after the other dies; the one after them lives.
Case = tuple[Crash, ...]


@dataclass(frozen=True)
class Tried:
    """A case, and what came of it.

    Attributes:
        reached: whether the process came by the point at which it was to die.
        log: the last lines of what the processes said; of thousands of cases, no more is kept.
    """

    case: Case
    reached: bool
    verdict: Verdict
    log: Sequence[str]

    @property
    def name(self) -> str:
        return ", then ".join(map(str, self.case))

    @property
    def report(self) -> str:
        """What one has to know to find out what went wrong; nothing, if nothing did."""
        if not self.verdict.findings:
            return ""
        return "\n  ".join([f"{self.name}:", *self.verdict.findings, *(f"| {line}" for line in self.log)])


@dataclass(frozen=True)
class Plan:
    """All cases there are.

    Attributes:
        passages: how often a process comes by each point that it comes by.
        once: it dies at one of these points, in the first passage or in the last.
        twice: it dies in the midst of an answer, and the one that takes that up dies at one of its points.
    """

    passages: Mapping[str, int]
    once: Sequence[Case]
    twice: Sequence[Case]


async def plan(stage: Stage) -> Plan:
    """Find out by which points processes come.

    Raises:
        AssertionError: all is not well even without a crash, or with the one in the midst of an answer.
    """
    first = await count(stage)
    middle = midst(first)
    second = await count(stage, middle)
    once = [(crash,) for crash in _crashes(first)]
    return Plan({**second, **first}, once, [(middle, crash) for crash in _crashes(second)])


async def count(stage: Stage, *case: Crash) -> dict[str, int]:
    """How often the process behind the last crash comes by each point that it comes by.

    Raises:
        AssertionError: all is not well.
    """
    outcomes = await asyncio.gather(*(stage.play(*case) for _ in range(COUNTED)))
    for outcome in outcomes:
        findings = judge(outcome.evidence, crashed=bool(case)).findings
        assert not findings, "\n".join([*findings, outcome.log])
    common = set.intersection(*(set(outcome.passages) for outcome in outcomes))
    return {point: min(outcome.passages[point] for outcome in outcomes) for point in sorted(common)}


def midst(passages: Mapping[str, int]) -> Crash:
    """A crash in the midst of an answer."""
    often = max((point for point in passages if module_of(point) == ANSWER), key=lambda point: passages[point])
    return Crash(often, passages[often] // 2)


def sample(of: Sequence[Case], size: int, seed: int) -> list[Case]:
    return random.Random(seed).sample(of, min(size, len(of)))


async def try_all(
    stage: Stage, cases: Sequence[Case], tell: Callable[[Tried], object], *, at_once: int = AT_ONCE
) -> None:
    """Play the scenario with each of the cases, some at once.

    Args:
        tell: is told of each as it ends.
    """

    async def play(case: Case) -> None:
        tell(await _try(stage, case))

    await run_concurrently(play, cases, at_once)


async def reach(stage: Stage, cases: Sequence[Case], size: int) -> list[Tried]:
    """Play the scenario until so many of the cases have come about: for one that its process does not come by, which
    happens on a machine that is slower or quicker than when it was planned, the next one is played.
    """
    tried, ahead, missing = list[Tried](), iter(cases), size
    while missing and (some := list(islice(ahead, missing))):
        done = list[Tried]()
        await try_all(stage, some, done.append)
        tried += done
        missing -= sum(one.reached for one in done)
    return tried


async def _try(stage: Stage, case: Case) -> Tried:
    """Play the scenario. How often a process comes by a point may differ from time to time: if it did not come by often
    enough to die, it is tried once more at what turned out to be the last passage, and then halfway there.
    """
    (tried, seen), (*before, crash) = await _play(stage, case), case
    for share in (1, 2):
        passages = seen.get(crash.point)
        if tried.reached or tried.verdict.findings or not passages:
            break
        tried, seen = await _play(stage, (*before, Crash(crash.point, max(1, passages // share))))
    return tried


async def _play(stage: Stage, case: Case) -> tuple[Tried, Mapping[str, int]]:
    """What came of the case, and how often its last process came by each point."""
    outcome = await stage.play(*case)
    log = outcome.log.splitlines()[-MOST_LINES:]
    return Tried(case, outcome.reached, judge(outcome.evidence), log), outcome.passages


def _crashes(passages: Mapping[str, int]) -> list[Crash]:
    return [Crash(point, passage) for point, times in passages.items() for passage in sorted({1, times})]
