import math
from itertools import combinations, combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replies.floors import (
    LIMITS,
    SPAN_SECONDS,
    LimitWindow,
    PlatformLimits,
    WindowUsage,
    best_end_delays,
    count_messages,
    min_joint_age,
    min_mean_age,
)
from benchmarks.replies.load import Ending, Load
from benchmarks.replies.platforms import NETWORK_DELAY_SECONDS
from chatrig.slack.api import limits

ONE = Load(1, 1, Ending.SIMULTANEOUS)


def make_limits(calls: int, seconds: float, *, is_sliding: bool) -> PlatformLimits:
    """Return rate limits in which posts have the same limit as edits.

    Each reply fits into one message.
    """
    window = LimitWindow(calls, seconds, is_sliding)
    return PlatformLimits(window, window, False, window, None, size=1_000_000)


def get_mean_age(moments: tuple[float, ...], spans: float) -> float:
    """Return the mean age of a shown text over `spans` seconds.

    Args:
        moments: the times of the edits. An edit shows the text from one network delay earlier.
    """
    age, shown_at, since = 0.0, 0.0, 0.0
    for moment in [*sorted(moments), spans]:
        age += (moment - since) * ((moment + since) / 2 - shown_at)
        shown_at, since = moment - NETWORK_DELAY_SECONDS, moment
    return age / spans


def test_no_schedule_beats_the_floor_and_an_even_one_reaches_it() -> None:
    for edits in (1, 2, 3):
        floor = min_mean_age(ONE, make_limits(edits, 60, is_sliding=True))
        grid = [SPAN_SECONDS * step / 40 for step in range(1, 40)]
        best = min(get_mean_age(moments, SPAN_SECONDS) for moments in combinations_with_replacement(grid, edits))
        assert floor <= best <= 1.01 * floor


def has_unused_calls(moments: tuple[float, ...], window: LimitWindow) -> bool:
    """Return whether no window of a fixed-window limit is ever used up.

    Args:
        moments: the times of the calls.
    """
    window_start, used = -math.inf, 0
    for moment in moments:
        window_start, used = (moment, 1) if moment >= window_start + window.seconds else (window_start, used + 1)
        if used >= window.calls:
            return False
    return True


def test_no_schedule_that_can_end_at_any_time_beats_the_joint_floor() -> None:
    window = LimitWindow(3, 10.0, is_sliding=False)
    floor = min_joint_age(ONE, PlatformLimits(window, window, False, window, None, size=1_000_000))
    grid = [SPAN_SECONDS * step / 24 for step in range(24)]
    ages = [
        get_mean_age(moments, SPAN_SECONDS)
        for edits in range(4, 7)
        for moments in combinations(grid, edits)
        if has_unused_calls(moments, window)
    ]
    assert floor <= min(ages) <= 1.25 * floor


@pytest.mark.parametrize("platform", LIMITS)
@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("replies", [1, 10, 50])
def test_reserved_calls_for_endings_do_not_lower_the_floor(platform: str, ending: Ending, replies: int) -> None:
    load = Load(replies, 5, ending)
    assert min_joint_age(load, LIMITS[platform]) >= min_mean_age(load, LIMITS[platform])


def test_a_single_reply_leaves_room_for_its_ending() -> None:
    plenty = make_limits(10_000, 60, is_sliding=True)
    calls = SPAN_SECONDS / (8 * NETWORK_DELAY_SECONDS)
    assert min_mean_age(ONE, plenty) == pytest.approx(NETWORK_DELAY_SECONDS, rel=0.1)
    assert min_joint_age(ONE, plenty) == pytest.approx(SPAN_SECONDS / 2 / (calls + 1) + NETWORK_DELAY_SECONDS, rel=0.05)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(1, 30), st.sampled_from(Ending))
def test_a_larger_budget_never_raises_the_floor(replies: int, calls: int, ending: Ending) -> None:
    load = Load(replies, 3, ending)
    lower, higher = (make_limits(number, 10, is_sliding=False) for number in (calls, calls + 1))
    assert min_mean_age(load, higher) <= min_mean_age(load, lower)
    assert sum(best_end_delays(load, higher)) <= sum(best_end_delays(load, lower)) + 1e-9


@pytest.mark.parametrize("platform", LIMITS)
def test_more_replies_never_lower_the_floor(platform: str) -> None:
    ages = [min_mean_age(Load(replies, 1, Ending.SIMULTANEOUS), LIMITS[platform]) for replies in (1, 2, 10, 50)]
    assert ages == sorted(ages)


def test_slack_channels_share_edits_and_discord_channels_do_not() -> None:
    single, concurrent = Load(1, 1, Ending.SIMULTANEOUS), Load(10, 10, Ending.SIMULTANEOUS)
    assert min_mean_age(concurrent, LIMITS["discord"]) == pytest.approx(min_mean_age(single, LIMITS["discord"]))
    assert min_mean_age(concurrent, LIMITS["slack"]) > 4 * min_mean_age(single, LIMITS["slack"])


@given(st.lists(st.floats(0, 20), max_size=40), st.integers(1, 4), st.booleans())
def test_usage_never_exceeds_its_window(call_times: list[float], calls: int, is_sliding: bool) -> None:
    usage = WindowUsage(LimitWindow(calls, 5, is_sliding))
    for at in sorted(call_times):
        usage.add_call(usage.earliest(at))
    for first in usage.call_times:
        for last in usage.call_times:
            within = sum(first <= at <= last for at in usage.call_times)
            if is_sliding and last - first < 5 - 1e-9:
                assert within <= calls
            if not is_sliding and last >= first:
                assert within <= calls * (math.floor((last - first) / 5 + 1e-9) + 2)


def test_an_undelayed_ending_takes_one_network_delay() -> None:
    for platform_limits in LIMITS.values():
        assert best_end_delays(Load(10, 5, Ending.SIMULTANEOUS), platform_limits) == [NETWORK_DELAY_SECONDS] * 10


def test_endings_of_one_message_replies_follow_the_edit_limit() -> None:
    waits = best_end_delays(Load(7, 1, Ending.SIMULTANEOUS), make_limits(3, 10, is_sliding=True))
    assert [wait - NETWORK_DELAY_SECONDS for wait in waits] == pytest.approx([0, 0, 0, 10, 10, 10, 20])


def test_the_limits_equal_those_of_the_simulator() -> None:
    edits, appends, stops = (rate.max_calls for rate in (limits.TIER_3, limits.TIER_4, limits.TIER_2))
    assert LIMITS["slack"].edits == LimitWindow(edits + appends + stops, 60, is_sliding=True)
    assert LIMITS["slack"].endings == LimitWindow(edits + stops, 60, is_sliding=True)
    assert {name: count_messages(of_platform) for name, of_platform in LIMITS.items()} == {"slack": 2, "discord": 4}
