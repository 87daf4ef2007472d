"""Many crashes: which there are, a sample of them, and what came of each."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.stage import Outcome, Stage
from tests.chaos.verdict import Verdict, judge
from tests.chaos.victim import Crash

#: How many scenarios are played at once.
AT_ONCE = 4

#: How many runs without a crash tell how often each point is come by: the least is what a crash can count on.
COUNTED = 2


@dataclass(frozen=True)
class Tried:
    """A crash, and what came of it."""

    crash: Crash
    outcome: Outcome
    verdict: Verdict

    @property
    def report(self) -> str:
        """What one has to know to find out what went wrong; nothing, if nothing did."""
        if not self.verdict.findings:
            return ""
        log = self.outcome.log.splitlines()[-40:]
        return "\n  ".join([f"{self.crash}:", *self.verdict.findings, *(f"| {line}" for line in log)])


async def count(stage: Stage) -> dict[str, int]:
    """How often a process comes by each point that it comes by, if it does not die.

    Raises:
        AssertionError: all is not well even so.
    """
    outcomes = await asyncio.gather(*(stage.play() for _ in range(COUNTED)))
    for outcome in outcomes:
        findings = judge(outcome.evidence, crashed=False).findings
        assert not findings, "\n".join([*findings, outcome.log])
    common = set.intersection(*(set(outcome.passages) for outcome in outcomes))
    return {point: min(outcome.passages[point] for outcome in outcomes) for point in sorted(common)}


def crashes(passages: Mapping[str, int]) -> list[Crash]:
    """At each point the first passage and the last."""
    return [Crash(point, passage) for point, times in passages.items() for passage in sorted({1, times})]


def sample(of: Sequence[Crash], size: int, seed: int) -> list[Crash]:
    return random.Random(seed).sample(of, min(size, len(of)))


async def try_all(
    stage: Stage, these: Sequence[Crash], tell: Callable[[Tried], object] = lambda _tried: None
) -> list[Tried]:
    """Play the scenario with each of the crashes, some at once.

    Args:
        tell: is told of each as it ends.
    """
    left, ended = iter(these), list[Tried]()

    async def play() -> None:
        for crash in left:
            outcome = await stage.play(crash)
            tried = Tried(crash, outcome, judge(outcome.evidence))
            ended.append(tried)
            tell(tried)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(play())
    return ended
