"""Budgets that several workers share."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from hypothesis import example, given
from hypothesis import strategies as st

from channels.base import Priority
from channels.rate_limits.limiter import Budget, Window
from channels.rate_limits.registry import Pacer
from channels.rate_limits.share import ROUNDS
from core.workers.rate_limit_sharing import Use
from tests.channels.rate_limits.test_limiter import MINUTE, most_in, now, run

#: What one reply does: at which worker, after how many seconds, and for how many.
Said = tuple[int, float, float]

replies = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.floats(1, 60)), max_size=20)


def exchange(pacers: Sequence[Pacer], times: int = 1) -> None:
    """What they do every second."""
    for _ in range(times):
        told = [pacer.tell() for pacer in pacers]
        for number, pacer in enumerate(pacers):
            pacer.share([uses for other, uses in enumerate(told) if other != number])


def said(workers: int, replies: Sequence[Said], window: Window, late: Sequence[float]) -> tuple[list[float], float]:
    """When replies are shown that grow as fast as they may, and for how long the last word of one has waited at most.

    Args:
        late: by worker: how many seconds after the one before it begins, and five times as many as it takes longer
            than a second to tell of itself anew.
    """

    async def main() -> tuple[list[float], float]:
        pacers, told = [Pacer() for _ in range(workers)], [dict[str, Use]() for _ in range(workers)]
        sent, waits = list[float](), [0.0]

        async def reply(budget: Budget, after: float, seconds: float) -> None:
            await asyncio.sleep(after)
            with budget.live():
                ends = now() + seconds
                while now() < ends:
                    await budget.admit(Priority.TICK)
                    sent.append(now())
                    budget.answered()
                since = now()
                await budget.admit(Priority.FINAL)
                waits.append(now() - since)
                sent.append(now())
                budget.answered()

        async def keep(worker: int) -> None:
            pacer = pacers[worker]
            while True:
                pacer.share([uses for other, uses in enumerate(told) if other != worker])
                told[worker] = pacer.tell()
                await asyncio.sleep(1 + late[worker] / 5)

        for pacer in pacers:
            pacer.share([{} for _ in range(workers - 1)])
        async with asyncio.timeout(10_000), asyncio.TaskGroup() as group:
            keeping = []
            for worker in range(workers):
                await asyncio.sleep(late[worker])
                keeping.append(asyncio.create_task(keep(worker)))
            for worker, after, seconds in replies:
                group.create_task(reply(pacers[worker % workers].budget("edit", window), after, seconds))
        for task in keeping:
            task.cancel()
        return sorted(sent), max(waits)

    result: tuple[list[float], float] = run(main)
    return result


@given(
    st.integers(2, 4),
    replies,
    st.builds(Window, st.integers(32, 100), st.sampled_from([5.0, 60.0])),
    st.tuples(*[st.floats(0, 1)] * 4),
)
@example(3, [(0, 13.0, 16.0), (0, 13.0, 19.0), (1, 0.0, 14.0), (2, 16.0, 20.0)], Window(32, 60.0), (0.0,) * 4)
def test_workers_together_make_no_more_calls_than_a_window_holds(
    workers: int, replies: list[Said], window: Window, late: tuple[float, ...]
) -> None:
    sent, longest = said(workers, replies, window, late)
    assert len(sent) >= 2 * len(replies)
    assert most_in(sent, window) <= window.calls
    assert longest < window.seconds, "calls are kept back for last words"


def test_a_worker_has_as_much_of_what_is_allowed_as_of_the_replies_that_all_know_of() -> None:
    async def main() -> None:
        one, other = Pacer(), Pacer()
        here, there = one.budget("edit", MINUTE), other.budget("edit", MINUTE)

        def calls() -> tuple[int, int]:
            return here._calls, there._calls

        assert calls() == (50, 50)  # who is alone has all
        exchange([one, other])
        assert calls() == (6, 6)  # what the other one uses is not known as yet
        exchange([one, other], ROUNDS)
        assert calls() == (25, 25)
        with here.live(), ExitStack() as stack:
            exchange([one, other])
            assert calls() == (25, 6)
            exchange([one, other], ROUNDS)
            assert calls() == (44, 6)
            for _ in range(3):
                stack.enter_context(there.live())
            exchange([one, other])
            assert calls() == (11, 6)
            exchange([one, other], ROUNDS)
            assert calls() == (11, 33)
            one.share([])
            assert here._calls == 50

    run(main)


def test_a_worker_that_another_one_joins_goes_on_with_what_its_replies_need() -> None:
    async def main() -> None:
        pacers = [Pacer(), Pacer()]
        budget = pacers[0].budget("edit", MINUTE)
        with ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(budget.live())
            assert budget._calls == 50
            exchange(pacers)
            assert (budget._calls, pacers[1].budget("edit", MINUTE)._calls) == (36, 6)
            exchange(pacers, ROUNDS)
            assert (budget._calls, pacers[1].budget("edit", MINUTE)._calls) == (44, 6)

    run(main)


def test_who_knows_the_others_begins_with_an_even_part_of_what_nobody_uses() -> None:
    async def main() -> None:
        pacers = [Pacer(), Pacer()]
        exchange(pacers)
        assert pacers[0].budget("general", Window(5, 5.0))._calls == 1
        exchange(pacers, ROUNDS)
        assert pacers[0].budget("random", Window(5, 5.0))._calls == 2

    run(main)


def test_what_a_worker_has_used_when_its_part_was_larger_is_missing_from_all_parts_and_nobody_has_nothing() -> None:
    async def main() -> None:
        pacers = [Pacer() for _ in range(3)]
        busy, *others = budgets = [pacer.budget("edit", Window(48, 60.0)) for pacer in pacers]
        exchange(pacers)
        with busy.live():
            exchange(pacers, 2 * ROUNDS)
            for _ in range(30):
                await busy.admit(Priority.FINAL)
                busy.answered()
        with ExitStack() as stack:
            for budget in others:
                stack.enter_context(budget.live())
            exchange(pacers, ROUNDS + 1)
            assert [budget._calls for budget in others] == [9, 9]
        await asyncio.sleep(60)
        exchange(pacers, ROUNDS + 1)
        assert sum(budget._calls for budget in budgets) == 48

    run(main)


def test_what_workers_tell_each_other_says_nothing_of_what_a_budget_is_for() -> None:
    async def main() -> None:
        pacers = [Pacer(), Pacer()]
        for pacer in pacers:
            await pacer.budget(("answer", "https://hooks.example/secret"), Window(5, 60)).admit(Priority.FINAL)
        (told, use), *others = pacers[0].tell().items()
        assert use == (0, 1)
        assert (others, list(pacers[1].tell())) == ([], [told])
        assert not any(word in told for word in ("secret", "hooks", "answer"))

    run(main)
