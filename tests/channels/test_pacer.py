import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Priority
from channels.pacer import Pacer, Window

MINUTE = Window(calls=50, seconds=60)


class FastLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to whatever comes next, instead of waiting for it."""

    now = 1_000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own list
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, min(timer.when() for timer in scheduled))
        super()._run_once()  # type: ignore[misc]


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


def most_in(times: list[float], window: Window) -> int:
    return max((sum(start <= at < start + window.seconds for at in times) for start in times), default=0)


calls = st.lists(st.tuples(st.floats(0, 100), st.sampled_from(Priority)), max_size=40)


@given(calls, st.builds(Window, st.integers(1, 8), st.sampled_from([1.0, 10.0, 60.0])))
def test_no_window_ever_holds_more_than_it_may(asked: list[tuple[float, Priority]], window: Window) -> None:
    async def main() -> list[float]:
        pacer, sent = Pacer(), list[float]()

        async def call(after: float, priority: Priority) -> None:
            await asyncio.sleep(after)
            if await pacer.admit("key", window, priority):
                sent.append(now())
            else:
                assert priority is Priority.TICK

        await asyncio.gather(*(call(*one) for one in asked))
        return sent

    assert most_in(run(main), window) <= window.calls


def test_ticks_keep_an_even_pace_and_are_dropped_where_they_would_not() -> None:
    async def main() -> list[float]:
        pacer, sent = Pacer(), list[float]()
        for _ in range(1200):
            if await pacer.admit("key", MINUTE, Priority.TICK):
                sent.append(now())
            await asyncio.sleep(0.1)
        return sent

    sent = run(main)
    assert min(after - before for before, after in pairwise(sent)) >= 60 / 50
    assert 70 <= len(sent) <= 80
    assert most_in(sent, MINUTE) <= 40


def test_a_tick_is_answered_at_once_even_if_it_has_no_place() -> None:
    async def main() -> None:
        pacer, begun = Pacer(), now()
        assert await pacer.admit("key", MINUTE, Priority.TICK)
        assert not await pacer.admit("key", MINUTE, Priority.TICK)
        assert now() == begun

    run(main)


def test_finals_find_a_fifth_of_the_window_free_of_ticks() -> None:
    async def main() -> None:
        pacer = Pacer()
        for _ in range(600):
            await pacer.admit("key", MINUTE, Priority.TICK)
            await asyncio.sleep(0.1)
        begun = now()
        for _ in range(10):
            await pacer.admit("key", MINUTE, Priority.FINAL)
        assert now() == begun

    run(main)


def test_a_final_waits_for_its_place() -> None:
    async def main() -> None:
        pacer, begun = Pacer(), now()
        for _ in range(4):
            assert await pacer.admit("key", Window(3, 3), Priority.FINAL)
        assert now() == begun + 3

    run(main)


def test_who_waits_goes_by_importance_and_then_by_arrival() -> None:
    async def main() -> list[str]:
        pacer, order = Pacer(), list[str]()
        window = Window(1, 1)
        await pacer.admit("key", window, Priority.FINAL)

        async def call(name: str, priority: Priority) -> None:
            await pacer.admit("key", window, priority)
            order.append(name)

        names = [("progress", 2), ("error", 1), ("first final", 0), ("second final", 0)]
        tasks = [asyncio.create_task(call(name, Priority(number))) for name, number in names]
        await asyncio.sleep(0.5)
        assert not await pacer.admit("key", window, Priority.TICK)
        await asyncio.gather(*tasks)
        return order

    assert run(main) == ["first final", "second final", "error", "progress"]


def test_who_gives_up_waiting_lets_the_others_go_on() -> None:
    async def main() -> None:
        pacer, begun = Pacer(), now()
        window = Window(1, 1)
        await pacer.admit("key", window, Priority.FINAL)
        first = asyncio.create_task(pacer.admit("key", window, Priority.FINAL))
        second = asyncio.create_task(pacer.admit("key", window, Priority.PROGRESS))
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second
        assert now() == begun + 1

    run(main)


def test_a_refusal_closes_the_key_for_as_long_as_the_platform_asked() -> None:
    async def main() -> None:
        pacer, begun = Pacer(), now()
        pacer.refused("key", 30)
        pacer.refused("key", 2)
        assert not await pacer.admit("key", MINUTE, Priority.TICK)
        assert await pacer.admit("key", MINUTE, Priority.FINAL)
        assert now() == begun + 30

    run(main)


def test_keys_have_budgets_of_their_own() -> None:
    async def main() -> None:
        pacer, begun = Pacer(), now()
        pacer.refused("closed", 30)
        assert await pacer.admit("one", Window(1, 60), Priority.TICK)
        assert await pacer.admit("other", Window(1, 60), Priority.TICK)
        assert not await pacer.admit("closed", Window(1, 60), Priority.TICK)
        assert now() == begun

    run(main)
