import asyncio

import pytest

from channels.base import Priority
from channels.rate_limits import retries as calls
from channels.rate_limits.limiter import Window
from channels.rate_limits.retries import Caller, RefusedError, TransientError, cancel_unless, deadline
from core.errors import SurfaceError, TurnLostError

WINDOW = Window(calls=100, seconds=0.1)


class FailingEndpoint:
    """API call of a platform that raises given failures first, and counts the tries."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.refused = asyncio.Event()
        self.caller = Caller("test", pauses=(0.01, 0.01))

    async def send(self) -> str:
        self.calls += 1
        if self.failures:
            self.refused.set()
            raise self.failures.pop(0)
        return "sent"

    async def call(self, priority: Priority = Priority.FINAL, key: str = "key") -> str | None:
        return await self.caller.call("post", self.send, self.caller.limiters.get(key, WINDOW), priority=priority)


def create_transient_errors(number: int) -> list[Exception]:
    return [TransientError("HTTP 500") for _ in range(number)]


async def test_a_transient_failure_is_retried_until_the_pauses_are_used() -> None:
    assert await FailingEndpoint(*create_transient_errors(2)).call() == "sent"
    platform = FailingEndpoint(*create_transient_errors(3))
    with pytest.raises(SurfaceError, match=r"^post: the platform cannot be reached \(HTTP 500\)$"):
        await platform.call()
    assert platform.calls == 3


async def test_a_rate_limited_call_is_retried_without_a_limit() -> None:
    platform = FailingEndpoint(*(TransientError("later", retry_after=0.01) for _ in range(20)))
    assert await platform.call() == "sent"
    assert platform.calls == 21


async def test_a_429_delays_all_calls_that_share_the_limit() -> None:
    platform = FailingEndpoint(TransientError("later", retry_after=1.0))
    time = asyncio.get_running_loop().time
    start = time()
    first = asyncio.create_task(platform.call())
    await asyncio.wait_for(platform.refused.wait(), 30)
    assert await platform.call(key="another") == "sent"
    assert time() - start < 0.9
    assert await platform.call(Priority.STREAM_UPDATE) is None
    assert await platform.call() == "sent"
    assert time() - start >= 1.0
    assert await first == "sent"


async def test_a_call_with_a_deadline_fails_at_once_if_no_slot_is_free_by_then() -> None:
    platform, time = FailingEndpoint(), asyncio.get_running_loop().time
    budget = platform.caller.limiters.get("few", Window(calls=2, seconds=60))
    with deadline(4):
        assert [await platform.caller.call("read", platform.send, budget) for _ in range(2)] == ["sent", "sent"]
        start = time()
        with pytest.raises(SurfaceError, match=r"^the rate limit does not allow the call in time$"):
            await platform.caller.call("read", platform.send, budget)
        assert time() - start < 3
    assert platform.calls == 2
    with deadline(4):
        assert await platform.call() == "sent"
    waiting = asyncio.create_task(platform.caller.call("read", platform.send, budget))
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_refusal_is_not_retried() -> None:
    platform = FailingEndpoint(RefusedError("post", "no"))
    with pytest.raises(RefusedError, match=r"^post: no$"):
        await platform.call()
    assert platform.calls == 1


async def test_a_stream_update_is_tried_once_and_reports_a_possible_effect() -> None:
    platform = FailingEndpoint(TransientError("later", retry_after=0.01))
    assert await platform.call(Priority.STREAM_UPDATE) is None
    assert platform.calls == 1
    platform = FailingEndpoint(TransientError("HTTP 500"))
    with pytest.raises(TransientError):
        await platform.call(Priority.STREAM_UPDATE)
    assert platform.calls == 1


async def test_a_call_that_took_effect_is_not_repeated_and_a_429_needs_no_lookup() -> None:
    platform = FailingEndpoint(TransientError("later", retry_after=0.01), *create_transient_errors(2))
    looks = ["", "", "there"]

    async def find_effect() -> str | None:
        return looks.pop(0) or None

    budget = platform.caller.limiters.get("key", WINDOW)
    assert await platform.caller.call("post", platform.send, budget, find_effect=find_effect) == "sent"
    assert (platform.calls, looks) == (4, ["there"])
    platform.failures = create_transient_errors(1)
    assert await platform.caller.call("post", platform.send, budget, find_effect=find_effect) == "there"
    assert platform.calls == 5


@pytest.mark.parametrize("retry_after", [None, 60.0], ids=["it failed", "it came too often"])
async def test_an_obsolete_call_is_not_retried_and_uses_no_slot(
    retry_after: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CHECK_SECONDS", 0.01)
    platform, is_wanted = FailingEndpoint(TransientError("HTTP 500", retry_after=retry_after)), True
    platform.caller = Caller("test", pauses=(60.0,))

    async def check_wanted() -> None:
        if not is_wanted:
            raise TurnLostError("another one has it")

    async def show() -> None:
        with cancel_unless(check_wanted):
            with pytest.raises(TurnLostError):
                await platform.call()
            with pytest.raises(TurnLostError):
                await platform.call(key="another")
            assert await asyncio.create_task(platform.call(key="goes on by itself")) == "sent"

    showing = asyncio.create_task(show())
    await asyncio.wait_for(platform.refused.wait(), 30)
    await asyncio.sleep(0.05)
    assert not showing.done()
    is_wanted = False
    await asyncio.wait_for(showing, 30)
    assert platform.calls == 2
    assert platform.caller.limiters.get("another", WINDOW).headroom == 1.0
    assert await platform.call(key="another") == "sent"


async def test_a_call_without_retries_raises_its_error() -> None:
    platform = FailingEndpoint(*create_transient_errors(1))
    budget = platform.caller.limiters.get("key", WINDOW)
    with pytest.raises(TransientError, match="HTTP 500"):
        await platform.caller.call_once("post", platform.send, budget)
    assert platform.calls == 1
    assert await platform.caller.call_once("post", platform.send, budget) == "sent"
