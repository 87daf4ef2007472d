import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.base import FIRST_TEXT, Priority
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters
from core.store.workers.rate_limit_sharing import LimitUsage
from tests.fixtures.clock import FastLoop

MINUTE = Window(calls=50, seconds=60)


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


def count_most_calls(times: list[float], window: Window) -> int:
    """Return the maximum number of calls within one window of a rate limit.

    Args:
        times: the seconds of the calls; a microsecond of difference does not count.
    """
    span = window.seconds - 1e-6
    return max((sum(start <= at < start + span for at in times) for start in times), default=0)


@contextmanager
def reserve_reply(limiter: RateLimiter) -> Iterator[None]:
    """Track a growing reply in the limiter, and reserve a call for its final text."""
    with limiter.track_reply(now()), limiter.reserve():
        yield


call_lists = st.lists(st.tuples(st.floats(0, 100), st.sampled_from(Priority)), max_size=40)


windows = st.builds(Window, st.integers(1, 8), st.sampled_from([1.0, 10.0, 60.0]), st.sampled_from([0.0, 0.2, 1.0]))


@given(call_lists, windows, st.integers(0, 9))
def test_no_window_exceeds_its_calls_and_every_call_is_made(
    calls: list[tuple[float, Priority]], window: Window, live: int
) -> None:
    async def main() -> list[float]:
        limiter, sent = RateLimiter(window), list[float]()

        async def call(after: float, priority: Priority) -> None:
            await asyncio.sleep(after)
            await limiter.acquire(priority)
            limiter.complete()
            sent.append(now())

        with ExitStack() as stack:
            for _ in range(live):
                stack.enter_context(reserve_reply(limiter))
            await asyncio.gather(*(call(*one) for one in calls))
        return sent

    sent = run(main)
    assert len(sent) == len(calls)
    assert count_most_calls(sent, window) <= window.calls


def get_tick_times(seconds: float, *, live: int = 1, window: Window = MINUTE) -> list[float]:
    """Simulate growing replies, and return the times of their edits in seconds.

    Args:
        live: the number of replies.
        window: the rate limit that they share.
    """

    async def main() -> list[float]:
        limiter, sent = RateLimiter(window), list[float]()

        async def reply() -> None:
            with reserve_reply(limiter):
                while now() < 1_000 + seconds:
                    await limiter.acquire(Priority.STREAM_UPDATE)
                    limiter.complete()
                    sent.append(now() - 1_000)

        await asyncio.gather(*(reply() for _ in range(live)))
        return sent

    return [at for at in run(main) if at < seconds]


def test_stream_updates_use_all_unreserved_calls_at_an_even_pace() -> None:
    sent = get_tick_times(600)
    assert count_most_calls(sent, MINUTE) <= 49
    assert len(sent) >= 0.95 * 49 * 10
    assert max(after - before for before, after in pairwise(sent)) < 8
    assert max(after - before for before, after in pairwise(at for at in sent if at > 70)) < 2


def test_a_short_reply_may_use_most_of_a_window() -> None:
    sent = get_tick_times(30)
    assert len(sent) >= 44
    assert max(after - before for before, after in pairwise(at for at in sent if at < 22)) < 0.7
    assert max(after - before for before, after in pairwise(sent)) < 1.5


def test_replies_that_start_later_are_shown_too() -> None:
    async def main() -> list[int]:
        limiter, counts = RateLimiter(Window(100, 60)), [0] * 10

        async def reply(number: int) -> None:
            await asyncio.sleep(3 * number)
            end = now() + 30
            with limiter.track_reply(now()):
                while now() < end:
                    await limiter.acquire(Priority.STREAM_UPDATE)
                    limiter.complete()
                    counts[number] += now() < end

        await asyncio.gather(*map(reply, range(10)))
        return counts

    counts = run(main)
    assert sum(counts) >= 85
    assert min(counts) >= 3


@pytest.mark.parametrize(("live", "reserved"), [(1, 1), (10, 10), (40, 40), (200, 40)])
def test_stream_updates_leave_calls_for_the_finals_of_live_replies(live: int, reserved: int) -> None:
    assert count_most_calls(get_tick_times(200, live=live), MINUTE) <= 50 - reserved


@pytest.mark.parametrize("is_told", [False, True])
def test_the_first_text_is_sent_at_once_unless_the_call_is_reserved(is_told: bool) -> None:
    async def main() -> tuple[list[float], bool]:
        limiter, start = RateLimiter(Window(5, 5)), now()
        if is_told:
            limiter.report_headers(remaining=5, reset_after=5)
        with reserve_reply(limiter), reserve_reply(limiter):
            waits = list[float]()
            for _ in range(3):
                wait_start = now()
                await limiter.acquire(Priority.STREAM_UPDATE, FIRST_TEXT)
                limiter.complete()
                if is_told:
                    limiter.report_headers(remaining=4 - len(waits), reset_after=5 - (now() - start))
                waits.append(now() - wait_start)
            second = asyncio.create_task(limiter.acquire(Priority.STREAM_UPDATE, FIRST_TEXT))
            await asyncio.sleep(4)
            is_kept = not second.done()
            await second
        return waits, is_kept

    waits, is_kept = run(main)
    assert max(waits) == pytest.approx(0, abs=1e-3)
    assert is_kept


def test_the_most_outdated_stream_update_is_next() -> None:
    async def main() -> list[str]:
        limiter, order = RateLimiter(Window(1, 1)), list[str]()
        await limiter.acquire(Priority.FINAL)
        limiter.complete()

        async def tick(name: str, since: float) -> None:
            await limiter.acquire(Priority.STREAM_UPDATE, since)
            limiter.complete()
            order.append(name)

        names = [("fresh", now()), ("old", now() - 10), ("older", now() - 20)]
        await asyncio.gather(*(tick(*name) for name in names))
        return order

    assert run(main) == ["older", "old", "fresh"]


def test_finals_drain_at_the_limit_whatever_updates_wait() -> None:
    async def main() -> list[float]:
        limiter, finals = RateLimiter(MINUTE), list[float]()

        async def send_final() -> None:
            await limiter.acquire(Priority.FINAL)
            limiter.complete()
            finals.append(now() - 1_000)

        async def reply() -> None:
            while len(finals) < 100:
                await limiter.acquire(Priority.STREAM_UPDATE)
                limiter.complete()

        await asyncio.gather(*(send_final() for _ in range(100)), *(reply() for _ in range(5)))
        return finals

    assert max(run(main)) <= 61


def test_a_final_has_a_slot_at_once_despite_stream_updates() -> None:
    async def main() -> None:
        limiter = RateLimiter(MINUTE)
        with reserve_reply(limiter):
            for _ in range(200):
                await limiter.acquire(Priority.STREAM_UPDATE)
                limiter.complete()
            start = now()
            await limiter.acquire(Priority.FINAL)
            limiter.complete()
            assert now() == start

    run(main)


def test_a_final_waits_for_its_slot() -> None:
    async def main() -> None:
        limiter, start = RateLimiter(Window(3, 3)), now()
        for _ in range(4):
            await limiter.acquire(Priority.FINAL)
            limiter.complete()
        assert now() == start + 3

    run(main)


def test_calls_are_made_by_priority_and_then_by_arrival() -> None:
    async def main() -> list[str]:
        limiter, order = RateLimiter(Window(1, 1)), list[str]()
        await limiter.acquire(Priority.FINAL)
        limiter.complete()

        async def call(name: str, priority: Priority) -> None:
            await limiter.acquire(priority)
            limiter.complete()
            order.append(name)

        names = [("tick", 3), ("progress", 2), ("error", 1), ("first final", 0), ("second final", 0)]
        tasks = [asyncio.create_task(call(name, Priority(number))) for name, number in names]
        await asyncio.sleep(0.5)
        assert not limiter.try_acquire(Priority.STREAM_UPDATE)
        await asyncio.gather(*tasks)
        return order

    assert run(main) == ["first final", "second final", "error", "progress", "tick"]


def test_a_backfill_call_comes_last_and_leaves_a_final_call_per_live_reply() -> None:
    async def main() -> list[str]:
        limiter, order = RateLimiter(Window(3, 10)), list[str]()

        async def call(priority: Priority) -> None:
            await limiter.acquire(priority)
            limiter.complete()
            order.append(priority.name)

        with reserve_reply(limiter):
            looks = [asyncio.create_task(call(Priority.BACKFILL)) for _ in range(4)]
            await asyncio.sleep(1)
            await call(Priority.FINAL)
            others = [asyncio.create_task(call(priority)) for priority in (Priority.STREAM_UPDATE, Priority.PROGRESS)]
            await asyncio.gather(*others, *looks)
        return order

    assert run(main) == ["BACKFILL", "BACKFILL", "FINAL", "PROGRESS", "STREAM_UPDATE", "BACKFILL", "BACKFILL"]


def get_backfill_times(calls: list[float], window: Window, urgent_pause: float) -> tuple[list[float], list[float]]:
    """Simulate backfill calls that begin at given seconds, and regular urgent calls until the last one is made.

    Args:
        urgent_pause: seconds between two urgent calls.

    Returns:
        The seconds at which the backfill calls are made, and the waits of the urgent calls.
    """

    async def main() -> tuple[list[float], list[float]]:
        limiter, sent, waits = RateLimiter(window), list[float](), list[float]()

        async def call(after: float) -> None:
            await asyncio.sleep(after)
            await limiter.acquire(Priority.BACKFILL)
            limiter.complete()
            sent.append(now() - 1_000)

        async def call_urgently() -> None:
            start = now()
            await limiter.acquire(Priority.FINAL)
            limiter.complete()
            waits.append(now() - start)

        tasks = [asyncio.create_task(call(after)) for after in calls]
        while len(sent) < len(calls):
            await asyncio.gather(call_urgently(), asyncio.sleep(urgent_pause))
        await asyncio.gather(*tasks)
        return sent, waits

    result: tuple[list[float], list[float]] = run(main)
    return result


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.integers(5, 20), st.sampled_from([0.2, 0.5]))
def test_urgent_calls_of_the_urgent_fraction_wait_at_most_for_one_of_them(
    calls: list[float], size: int, fraction: float
) -> None:
    pause = 10 / (size * fraction)
    _, waits = get_backfill_times(calls, Window(size, 10, fraction), pause)
    assert max(waits) <= pause + 1e-3


@pytest.mark.parametrize("size", [240, 300, 900, 1_500])
def test_an_urgent_fraction_costs_backfill_calls_no_throughput(size: int) -> None:
    calls = [number / 20 for number in range(size)]
    before, slow_waits = get_backfill_times(calls, Window(300, 60), urgent_pause=2)
    sent, waits = get_backfill_times(calls, Window(300, 60, urgent_fraction=0.2), urgent_pause=2)
    assert max(sent) <= max(before) + 60 * 0.2
    assert max(waits) < 0.01
    assert size == 240 or max(slow_waits) > 30


def test_workers_divide_an_urgent_fraction() -> None:
    async def main() -> int:
        limiter, count = RateLimiter(Window(100, 60, urgent_fraction=0.2)), 0
        limiter.apply_peer_usage([LimitUsage()])
        while limiter.try_acquire(Priority.BACKFILL):
            limiter.complete()
            count += 1
        return count

    assert run(main) == 40


def test_a_cancelled_call_uses_no_slot() -> None:
    async def main() -> None:
        limiter, start = RateLimiter(Window(1, 1)), now()
        await limiter.acquire(Priority.FINAL)
        limiter.complete()
        first = asyncio.create_task(limiter.acquire(Priority.FINAL))
        second = asyncio.create_task(limiter.acquire(Priority.PROGRESS))
        await asyncio.sleep(0.5)
        first.cancel()
        await second
        assert now() == start + 1

    run(main)


def test_a_released_slot_is_free() -> None:
    async def main() -> None:
        limiter, start = RateLimiter(Window(1, 60)), now()
        await limiter.acquire(Priority.FINAL)
        waiting = asyncio.create_task(limiter.acquire(Priority.FINAL))
        await asyncio.sleep(1)
        limiter.release()
        await waiting
        assert now() == start + 1

    run(main)


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5), st.floats(0, 5)), max_size=40),
    st.builds(Window, st.integers(1, 8), st.sampled_from([1.0, 10.0])),
)
def test_slow_calls_never_exceed_a_window_of_the_platform(
    calls: list[tuple[float, float, float]], window: Window
) -> None:
    async def main() -> list[float]:
        limiter, arrived = RateLimiter(window), list[float]()

        async def call(after: float, forth_seconds: float, back_seconds: float) -> None:
            await asyncio.sleep(after)
            await limiter.acquire(Priority.FINAL)
            await asyncio.sleep(forth_seconds)
            arrived.append(now())
            await asyncio.sleep(back_seconds)
            limiter.complete()

        await asyncio.gather(*(call(*one) for one in calls))
        return arrived

    assert count_most_calls(run(main), window) <= window.calls


def test_a_429_closes_the_limiter_and_lowers_its_rate_until_none_follows() -> None:
    async def main() -> list[float]:
        limiter, start, sent = RateLimiter(Window(10, 10)), now(), list[float]()
        limiter.report_429(30)
        limiter.report_429(2)
        assert not limiter.try_acquire(Priority.FINAL)
        while now() < start + 200:
            await limiter.acquire(Priority.FINAL)
            limiter.complete()
            sent.append(now() - start)
        return sent

    sent = run(main)
    assert sent[0] == 30
    assert count_most_calls([at for at in sent if at < 40], Window(10, 10)) <= 8
    assert count_most_calls([at for at in sent if at > 120], Window(10, 10)) == 10


def test_a_limiter_keeps_to_a_lower_limit_and_probes_for_more() -> None:
    async def main() -> tuple[int, int]:
        limiter, granted, refused = RateLimiter(Window(50, 60.5)), [-60.0], 0
        while now() < 1_000 + 3_600:
            await limiter.acquire(Priority.PROGRESS)
            if now() >= granted[-1] + 60:
                granted.append(now())
            else:
                refused += 1
                limiter.report_429(granted[-1] + 60 - now())
            limiter.complete()
        return len(granted) - 1, refused

    granted, refused = run(main)
    assert granted >= 50
    assert refused <= 20


def test_a_limiter_recovers_its_full_rate_after_429s_caused_by_others() -> None:
    async def main() -> int:
        limiter = RateLimiter(Window(50, 60))
        await limiter.acquire(Priority.PROGRESS)
        limiter.report_429(60)
        limiter.complete()
        assert not limiter.can_reserve(2)
        await asyncio.sleep(30 * 60)
        sent = 0
        while limiter.try_acquire(Priority.PROGRESS):
            limiter.complete()
            sent += 1
        return sent

    assert run(main) == 50


class DiscordLimit:
    """Rate limit of Discord: a window begins with a call, and responses report it.

    Args:
        latency: the seconds of a call.
    """

    def __init__(self, calls: int, seconds: float, latency: float) -> None:
        self.calls, self.seconds, self.latency = calls, seconds, latency
        self.end, self.left, self.refused, self.times = 0.0, 0, 0, list[float]()

    async def call(self, limiter: RateLimiter) -> None:
        await asyncio.sleep(self.latency / 2)
        if now() >= self.end:
            self.end, self.left = now() + self.seconds, self.calls
        self.refused += self.left == 0
        self.left = max(0, self.left - 1)
        self.times.append(now())
        left, seconds = self.left, self.end - now()
        await asyncio.sleep(self.latency / 2)
        limiter.report_headers(remaining=left, reset_after=seconds)
        limiter.complete()


@pytest.mark.parametrize("calls", [1, 2, 5, 10])
@pytest.mark.parametrize("live", [1, 3, 20])
@pytest.mark.parametrize("latency", [0.02, 0.4])
def test_the_reported_limits_are_used_and_never_exceeded(calls: int, live: int, latency: float) -> None:
    async def main() -> DiscordLimit:
        limiter, discord = RateLimiter(Window(5, 5.25)), DiscordLimit(calls, 5.0, latency)

        async def reply() -> None:
            with reserve_reply(limiter):
                while now() < 1_100:
                    await limiter.acquire(Priority.STREAM_UPDATE)
                    await discord.call(limiter)

        await asyncio.gather(*(reply() for _ in range(live)))
        return discord

    discord = run(main)
    assert len(discord.times) > 0.5 * calls * 100 / 5
    if calls >= 5:  # the assumed limit holds before the first response
        assert discord.refused == 0


def test_running_calls_at_the_end_of_a_window_count_in_the_next_one() -> None:
    async def main() -> int:
        limiter = RateLimiter(Window(5, 5.25))
        limiter.report_headers(remaining=2, reset_after=1.0)
        for _ in range(2):
            await limiter.acquire(Priority.FINAL)
        await asyncio.sleep(1.01 - 5e-7)
        late = [asyncio.create_task(limiter.acquire(Priority.FINAL)) for _ in range(9)]
        await asyncio.sleep(1)
        done_count = sum(task.done() for task in late)
        for task in late:
            task.cancel()
        await asyncio.wait(late)
        return done_count

    assert run(main) == 3


def test_a_lone_reply_uses_every_call_and_its_final_waits_briefly() -> None:
    async def main() -> tuple[int, float]:
        limiter, discord, worst = RateLimiter(Window(5, 5.25)), DiscordLimit(5, 5.0, 0.02), 0.0
        with reserve_reply(limiter):
            while now() < 1_100:
                await limiter.acquire(Priority.STREAM_UPDATE)
                await discord.call(limiter)
                worst = max(worst, limiter._wait_seconds(limiter._waiter(Priority.FINAL)))
        return len(discord.times), worst

    calls, worst = run(main)
    assert calls > 95
    assert worst < 0.4


@given(st.lists(st.floats(0, 90) | st.just(70.0), min_size=1, max_size=40))
@example([70.0] * 40)
def test_a_reserved_call_is_free_at_once_under_any_load(
    ends: list[float],
) -> None:
    async def main() -> list[float]:
        limiter, waits = RateLimiter(MINUTE), list[float]()

        async def end_after(seconds: float) -> None:
            with limiter.reserve():
                await asyncio.sleep(seconds)
                start = now()
                await limiter.acquire(Priority.PROGRESS)
                waits.append(now() - start)
                await asyncio.sleep(0.1)
                limiter.complete()

        async def stream_updates() -> None:
            while len(waits) < len(ends):
                await limiter.acquire(Priority.STREAM_UPDATE)
                await asyncio.sleep(0.1)
                limiter.complete()

        growing = [asyncio.create_task(stream_updates()) for _ in range(5)]
        await asyncio.gather(*map(end_after, ends))
        for task in growing:
            task.cancel()
        return waits

    assert max(run(main)) == 0


@pytest.mark.parametrize("steps", range(4))
def test_a_cancelled_waiter_leaves_even_if_it_was_just_woken(steps: int) -> None:
    async def main() -> bool:
        limiter = RateLimiter(Window(1, 60))
        await limiter.acquire(Priority.FINAL)
        limiter.complete()
        waiting, other = (asyncio.create_task(limiter.acquire(Priority.STREAM_UPDATE)) for _ in range(2))
        await asyncio.sleep(1)
        other.cancel()  # the cancellation wakes the first waiter
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting], timeout=1)
        return waiting.cancelled()

    assert run(main)


def test_each_key_has_a_limiter_and_idle_limiters_are_dropped() -> None:
    async def main() -> None:
        limiters = RateLimiters()
        limiters.get("closed", MINUTE).report_429(30)
        assert limiters.get("open", MINUTE).try_acquire(Priority.STREAM_UPDATE)
        assert not limiters.get("closed", MINUTE).try_acquire(Priority.STREAM_UPDATE)
        for number in range(3_000):
            limiters.get(number, MINUTE)
        assert len(limiters._limiters) <= 1_001
        assert not limiters.get("closed", MINUTE).try_acquire(Priority.STREAM_UPDATE)

    run(main)


def test_only_free_calls_can_be_reserved() -> None:
    async def main() -> None:
        limiter = RateLimiter(Window(5, 60))
        assert limiter.calls_per_reply == 5
        with reserve_reply(limiter), reserve_reply(limiter), limiter.track_reply(now()):
            assert limiter.calls_per_reply == (5 - 2) / 4
            assert (limiter.can_reserve(2), limiter.can_reserve(3)) == (True, False)
            for _ in range(2):
                await limiter.acquire(Priority.FINAL)
                limiter.complete()
            assert (limiter.can_reserve(1), limiter.can_reserve(2)) == (True, False)
        limiter.report_429(30)
        assert not limiter.can_reserve(0)

    run(main)


def test_calls_of_later_windows_can_be_reserved() -> None:
    async def main() -> None:
        limiter = RateLimiter(Window(5, 6))
        limiter.report_headers(remaining=1, reset_after=2)
        with limiter.reserve(), limiter.reserve():
            assert not limiter.can_reserve(1)
            with limiter.reserve():
                assert (limiter.can_reserve(9), limiter.can_reserve(10)) == (True, False)

    run(main)


def test_a_faster_clock_makes_shorter_windows() -> None:
    async def main() -> None:
        limiter, start = RateLimiters(speed=10).get("key", Window(1, 60)), now()
        for _ in range(2):
            await limiter.acquire(Priority.FINAL)
            limiter.complete()
        assert now() == start + 6

    run(main)
