"""Rate limits of the local Slack's methods."""

import pytest

from chatrig.slack.api import limits
from chatrig.slack.api.limits import RATES, SlackRateLimits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock of the rate limits by a list with one item: the seconds."""
    now = [0.0]
    monkeypatch.setattr(limits, "monotonic", lambda: now[0])
    return now


def test_a_full_window_accepts_calls_when_old_ones_expire(clock: list[float]) -> None:
    windows = SlackRateLimits(speed=1)
    for second in range(50):
        clock[0] = second * 0.5
        assert windows.acquire("chat.update", "C1") is None
    assert windows.acquire("chat.update", "C2") == 36
    clock[0] = 60
    assert windows.acquire("chat.update", "C1") is None
    assert windows.acquire("chat.update", "C1") == 1


def test_a_channel_allows_a_burst_and_then_one_post_a_second(clock: list[float]) -> None:
    windows = SlackRateLimits(speed=1)
    admitted = 0
    for tenth in range(600):
        clock[0] = tenth / 10
        admitted += windows.acquire("chat.postMessage", "C1") is None
    assert admitted == 60
    assert windows.acquire("chat.postMessage", "C2") is None


def test_speed_shortens_retry_after(clock: list[float]) -> None:
    windows = SlackRateLimits(speed=30)
    for _ in range(20):
        assert windows.acquire("users.list", "") is None
    assert windows.acquire("users.list", "") == 2
    clock[0] = 2
    assert windows.acquire("users.list", "") is None


def test_a_method_without_a_published_limit_is_unlimited() -> None:
    windows = SlackRateLimits(speed=1)
    assert "response_url" not in RATES
    assert all(windows.acquire("response_url", "") is None for _ in range(1000))
