"""Budgets that several workers share."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from channels.budget import Window
from channels.channel import Priority
from channels.pacer import Pacer
from tests.channels.test_budget import MINUTE, most_in, now, run


def exchange(pacers: Sequence[Pacer]) -> None:
    """What they do every second."""
    told = [pacer.tell() for pacer in pacers]
    for number, pacer in enumerate(pacers):
        pacer.share([uses for other, uses in enumerate(told) if other != number])


@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.floats(1, 60)), max_size=20),
    st.builds(Window, st.integers(32, 100), st.sampled_from([5.0, 60.0])),
)
def test_workers_together_make_no_more_calls_than_a_window_holds(
    workers: int, replies: list[tuple[int, float, float]], window: Window
) -> None:
    async def main() -> list[float]:
        pacers, sent = [Pacer() for _ in range(workers)], list[float]()
        exchange(pacers)

        async def reply(pacer: Pacer, after: float, seconds: float) -> None:
            await asyncio.sleep(after)
            budget = pacer.budget("edit", window)
            with budget.live():
                ends = now() + seconds
                while now() < ends:
                    await budget.admit(Priority.TICK)
                    sent.append(now())
                    budget.answered()
                await budget.admit(Priority.FINAL)
                sent.append(now())
                budget.answered()

        async def keep() -> None:
            while True:
                await asyncio.sleep(1)
                exchange(pacers)

        keeping = asyncio.create_task(keep())
        async with asyncio.timeout(10_000), asyncio.TaskGroup() as group:
            for worker, after, seconds in replies:
                group.create_task(reply(pacers[worker % workers], after, seconds))
        keeping.cancel()
        return sorted(sent)

    sent = run(main)
    assert len(sent) >= 2 * len(replies)
    assert most_in(sent, window) <= window.calls


def test_a_worker_has_as_much_of_what_is_allowed_as_of_the_replies_that_all_know_of() -> None:
    async def main() -> None:
        one, other = Pacer(), Pacer()
        here, there = one.budget("edit", MINUTE), other.budget("edit", MINUTE)

        def calls() -> tuple[int, int]:
            return here._calls, there._calls

        assert calls() == (50, 50)  # who is alone has all
        exchange([one, other])
        assert calls() == (25, 25)
        with here.live(), ExitStack() as stack:
            exchange([one, other])
            assert calls() == (25, 6)
            exchange([one, other])
            exchange([one, other])
            assert calls() == (44, 6)
            for _ in range(3):
                stack.enter_context(there.live())
            exchange([one, other])
            assert calls() == (11, 6)
            exchange([one, other])
            exchange([one, other])
            assert calls() == (11, 33)
            one.share([])
            assert here._calls == 50

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
