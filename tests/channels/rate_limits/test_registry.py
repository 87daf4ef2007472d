"""Rate limits that several workers share."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from hypothesis import example, given
from hypothesis import strategies as st

from channels.base import Priority
from channels.rate_limits.limiter import SETTLE_ROUNDS, RateLimiter, Window
from channels.rate_limits.registry import RateLimiters
from core.store.workers.rate_limit_sharing import LimitUsage
from tests.channels.rate_limits.test_limiter import MINUTE, count_most_calls, now, reserve_reply, run

#: Simulated reply: number of its worker, start and duration in seconds.
ScriptedReply = tuple[int, float, float]

replies = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.floats(1, 60)), max_size=20)


def exchange_usage(registries: Sequence[RateLimiters], times: int = 1) -> None:
    """Exchange the used calls between all workers' limiters, as a second of time does.

    Args:
        times: the number of exchanges.
    """
    for _ in range(times):
        announced = [registry.record_usage() for registry in registries]
        for number, registry in enumerate(registries):
            registry.apply_peer_usage([uses for other, uses in enumerate(announced) if other != number])


def simulate_replies(
    workers: int, replies: Sequence[ScriptedReply], window: Window, late: Sequence[float]
) -> tuple[list[float], float]:
    """Simulate growing replies on several workers with a shared limit.

    Args:
        replies: (worker, start, seconds) of each reply.
        late: seconds by worker. A worker starts so long after the one before it.
            A fifth of it is added to the second between its announcements.

    Returns:
        The times of all calls, and the longest wait for a final edit, in seconds.
    """

    async def main() -> tuple[list[float], float]:
        registries, usages = [RateLimiters() for _ in range(workers)], [dict[str, LimitUsage]() for _ in range(workers)]
        sent, waits = list[float](), [0.0]

        async def reply(limiter: RateLimiter, after: float, seconds: float) -> None:
            await asyncio.sleep(after)
            with reserve_reply(limiter):
                ends = now() + seconds
                while now() < ends:
                    await limiter.acquire(Priority.STREAM_UPDATE)
                    sent.append(now())
                    limiter.complete()
                since = now()
                await limiter.acquire(Priority.FINAL)
                waits.append(now() - since)
                sent.append(now())
                limiter.complete()

        async def share_usage(worker: int) -> None:
            registry = registries[worker]
            while True:
                registry.apply_peer_usage([uses for other, uses in enumerate(usages) if other != worker])
                usages[worker] = registry.record_usage()
                await asyncio.sleep(1 + late[worker] / 5)

        for registry in registries:
            registry.apply_peer_usage([{} for _ in range(workers - 1)])
        async with asyncio.timeout(10_000), asyncio.TaskGroup() as group:
            keeping = []
            for worker in range(workers):
                await asyncio.sleep(late[worker])
                keeping.append(asyncio.create_task(share_usage(worker)))
            for worker, after, seconds in replies:
                group.create_task(reply(registries[worker % workers].get("edit", window), after, seconds))
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
def test_all_workers_together_keep_the_limit(
    workers: int, replies: list[ScriptedReply], window: Window, late: tuple[float, ...]
) -> None:
    sent, longest = simulate_replies(workers, replies, window, late)
    assert len(sent) >= 2 * len(replies)
    assert count_most_calls(sent, window) <= window.calls
    assert longest < window.seconds, "calls are kept back for last words"


def test_a_limit_is_divided_by_the_replies_of_each_worker() -> None:
    async def main() -> None:
        one, other = RateLimiters(), RateLimiters()
        first, second = one.get("edit", MINUTE), other.get("edit", MINUTE)

        def get_limits() -> tuple[int, int]:
            return first._limit, second._limit

        assert get_limits() == (50, 50)  # a single worker has the whole limit
        exchange_usage([one, other])
        assert get_limits() == (25, 25)
        with reserve_reply(first), ExitStack() as stack:
            exchange_usage([one, other])
            assert get_limits() == (25, 6)  # a share shrinks at once, and grows after the other worker's report
            exchange_usage([one, other], SETTLE_ROUNDS)
            assert get_limits() == (43, 6)
            for _ in range(3):
                stack.enter_context(reserve_reply(second))
            exchange_usage([one, other])
            assert get_limits() == (13, 6)
            exchange_usage([one, other], SETTLE_ROUNDS)
            assert get_limits() == (13, 36)
            one.apply_peer_usage([])
            assert first._limit == 50

    run(main)


def test_a_worker_keeps_the_calls_of_its_replies_when_another_joins() -> None:
    async def main() -> None:
        old, new = RateLimiters(), RateLimiters()
        limiter = old.get("edit", MINUTE)
        with ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(reserve_reply(limiter))
            new.apply_peer_usage([old.record_usage()])
            old.apply_peer_usage([new.record_usage()])
            assert (limiter._limit, new.get("edit", MINUTE)._limit) == (48, 1)

    run(main)


def test_calls_beyond_the_share_of_a_worker_reduce_the_other_shares() -> None:
    async def main() -> None:
        registries = [RateLimiters() for _ in range(3)]
        busy, *others = limiters = [registry.get("edit", Window(48, 60.0)) for registry in registries]
        exchange_usage(registries)
        with reserve_reply(busy):
            exchange_usage(registries, 2 * SETTLE_ROUNDS)
            for _ in range(30):
                await busy.acquire(Priority.FINAL)
                busy.complete()
        with ExitStack() as stack:
            for limiter in others:
                stack.enter_context(reserve_reply(limiter))
            exchange_usage(registries, SETTLE_ROUNDS + 1)
            assert 30 + sum(limiter._limit for limiter in others) <= 48
            await asyncio.sleep(60)
            exchange_usage(registries, SETTLE_ROUNDS + 1)
            assert 46 <= sum(limiter._limit for limiter in limiters) <= 48

    run(main)


def test_the_announced_usage_does_not_name_the_limit() -> None:
    async def main() -> None:
        registries = [RateLimiters(), RateLimiters()]
        for registry in registries:
            await registry.get(("answer", "https://hooks.example/secret"), Window(5, 60)).acquire(Priority.FINAL)
        (name, use), *others = registries[0].record_usage().items()
        assert use == (0, 1)
        assert (others, list(registries[1].record_usage())) == ([], [name])
        assert not any(word in name for word in ("secret", "hooks", "answer"))

    run(main)
