"""Lower bounds (floors) of replies' ages and ends, from the simulator's rate limits.

A floor is a bound for any schedule of calls. It assumes a schedule that knows the end of each reply in advance. Such a
schedule posts a placeholder, edits it (on Slack it may also append to a stream), and posts each further message.

`min_mean_age` and `best_end_delays` use all calls for one goal each, although a call cannot serve both. So there is a
third bound, `min_joint_age`. It is for schedules that do not know the end of a reply, and end it as early as the best
one.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.replies.load import TOKENS, TOKENS_PER_SECOND, Load, build_token
from benchmarks.replies.platforms import NETWORK_DELAY_SECONDS
from chatrig.discord.api import limits as discord
from chatrig.discord.api.message_content import MAX_TEXT_LENGTH
from chatrig.slack.api import limits as slack

#: Seconds from the first word to the last.
SPAN_SECONDS = (TOKENS - 1) / TOKENS_PER_SECOND

#: Numbers of equal parts into which the time is divided; the largest bound counts.
_PART_COUNTS = (1, 2, 3, 4, 5, 6, 8, 12)


@dataclass(frozen=True, slots=True)
class LimitWindow:
    """Rate limit of `calls` in `seconds`.

    Attributes:
        is_sliding: True if the limit holds for any span of that length; False if a window begins with its first call.
    """

    calls: int
    seconds: float
    is_sliding: bool

    def max_calls(self, span: float, *, is_first: bool, reserved: int = 0) -> int:
        """Return the maximum number of calls that the limit allows in `span` seconds.

        Args:
            is_first: whether no call came before the span.
            reserved: the number of calls of each window that stay unused.
        """
        whole = math.ceil(span / self.seconds - 1e-9)
        return max(0, self.calls - reserved) * (whole if self.is_sliding or is_first else whole + 1)


@dataclass(frozen=True, slots=True)
class PlatformLimits:
    """Rate limits and message size of a platform.

    Attributes:
        edits: limit of the calls that change a growing reply (edits; on Slack also appends and stops of streams), per
            workspace or (`edits_by_channel`) per channel.
        endings: limit of the final calls (edits; on Slack also stops of streams), with the same scope.
        posts: limit per channel.
        workspace_posts: limit per workspace; None without one.
        size: the maximum length of a message in characters.
    """

    edits: LimitWindow
    endings: LimitWindow
    edits_by_channel: bool
    posts: LimitWindow
    workspace_posts: LimitWindow | None
    size: int


def _slack_limits() -> PlatformLimits:
    (edits,), (posts, workspace_posts) = slack.RATES["chat.update"], slack.RATES["chat.postMessage"]
    (appends,), (stops,) = slack.RATES["chat.appendStream"], slack.RATES["chat.stopStream"]
    assert edits.seconds == appends.seconds == stops.seconds, "their windows are counted as one"
    return PlatformLimits(
        LimitWindow(edits.max_calls + appends.max_calls + stops.max_calls, edits.seconds, is_sliding=True),
        LimitWindow(edits.max_calls + stops.max_calls, edits.seconds, is_sliding=True),
        False,
        LimitWindow(posts.max_calls, posts.seconds, is_sliding=True),
        LimitWindow(workspace_posts.max_calls, workspace_posts.seconds, is_sliding=True),
        slack.MAX_UPDATE_CHARS,
    )


def _discord_limits() -> PlatformLimits:
    edits = discord.RATES["PATCH /channels/{channel}/messages/{message}"]
    posts = discord.RATES["POST /channels/{channel}/messages"]
    edit_window = LimitWindow(edits.max_calls, edits.seconds, is_sliding=False)
    return PlatformLimits(
        edit_window,
        edit_window,
        True,
        LimitWindow(posts.max_calls, posts.seconds, is_sliding=False),
        None,
        MAX_TEXT_LENGTH,
    )


LIMITS = {"slack": _slack_limits(), "discord": _discord_limits()}


def min_mean_age(load: Load, limits: PlatformLimits) -> float:
    """Return a lower bound of the shown text's mean age, for any schedule.

    The age is the time since the model emitted the newest visible word, in platform seconds: see `measure.mean_age`.
    With `m` calls over a span `s`, a reply's mean age is at least `s / (2 (m + 1))` plus the network delay. Evenly
    spaced calls reach this age. The allowed calls are distributed to minimize the sum of the replies' ages. The time is
    divided into equal parts; each number of parts in `_PART_COUNTS` gives a bound. The largest bound is returned.
    """
    return _mean_age(load, limits, is_joint=False)


def min_joint_age(load: Load, limits: PlatformLimits) -> float:
    """Return a lower bound of the mean age for schedules that end earliest.

    The age is that of `min_mean_age` (platform seconds), averaged over the time of each reply and over all replies.
    Such a schedule does not know the end of a reply, but ends each reply as early as the best schedule. It ends a reply
    by an edit or by stopping its stream. Below, `d` is the network delay, and a reply grows for a span `s`.

    - It reserves a call for each growing reply. With `n` growing replies, `n` calls of a window show no text. Each
      ending takes one more.
    - It has one call of a reply in flight, for two network delays. An ending waits for it. Over all possible endings,
      `m` calls delay it by a mean of `m (2 d)^2 / (2 s)`. The bound allows a mean delay of `d / 4`. So `m`, the calls
      of one reply in a part of the time, is at most `s / (8 d)`.
    """
    return _mean_age(load, limits, is_joint=True)


def _mean_age(load: Load, limits: PlatformLimits, *, is_joint: bool) -> float:
    extra_calls = count_messages(limits) - 1
    total = 0.0
    for numbers in _group_by_edit_limit(load, edits_by_channel=limits.edits_by_channel):
        starts = [number * load.start_interval for number in numbers]
        total += max(
            _summed_age_bound(starts, parts, limits.edits, extra_calls, is_joint=is_joint) for parts in _PART_COUNTS
        )
    return total / load.replies / SPAN_SECONDS


def count_messages(limits: PlatformLimits) -> int:
    """Return the number of platform messages for the text of one reply of a load.

    The texts of all replies have the same length.
    """
    return math.ceil(sum(len(build_token(0, position)) for position in range(TOKENS)) / limits.size)


def best_end_delays(load: Load, limits: PlatformLimits) -> list[float]:
    """Return the seconds from each reply's last word to its final text, at the best.

    The best schedule is first come, first served, with unused limits at its start. A reply ends by an edit or, with
    several messages, by the post of its last one, whichever is possible earlier. The delays are in platform seconds, in
    the order of the replies' numbers.
    """
    shared_edits = [WindowUsage(limits.endings)]
    edits = [[WindowUsage(limits.endings)] if limits.edits_by_channel else shared_edits for _ in range(load.channels)]
    workspace_posts = [WindowUsage(limits.workspace_posts)] if limits.workspace_posts else []
    posts = [[WindowUsage(limits.posts), *workspace_posts] for _ in range(load.channels)]
    delays = []
    for number in range(load.replies):
        ended, channel = number * load.start_interval + SPAN_SECONDS, load.channel(number)
        options = [posts[channel], edits[channel]] if count_messages(limits) > 1 else [edits[channel]]
        earliest = [max(usage.earliest(ended) for usage in windows) for windows in options]
        at = min(earliest)
        for usage in options[earliest.index(at)]:
            usage.add_call(at)
        delays.append(at - ended + NETWORK_DELAY_SECONDS)
    return delays


@dataclass(slots=True)
class WindowUsage:
    """Past calls under one rate limit, to find the next free time.

    Calls are added in the order of their times. With a sliding limit, any span of `x` seconds has at most
    `calls * (floor(x / seconds) + 1)` calls. A window that begins with its first call may end just before the next one
    starts. Then two bursts are adjacent, and the bound is `calls * (floor(x / seconds) + 2)`.
    """

    window: LimitWindow
    call_times: list[float] = field(default_factory=list)

    def earliest(self, at: float) -> float:
        """Return the earliest time, not before `at`, at which the limit allows a call."""
        calls, earliest = self.window.calls, at
        for windows in range(1, len(self.call_times) // calls + 1):
            offset = calls * (windows if self.window.is_sliding else windows + 1)
            if offset <= len(self.call_times):
                earliest = max(earliest, self.call_times[-offset] + windows * self.window.seconds)
        return earliest

    def add_call(self, at: float) -> None:
        self.call_times.append(at)


def _group_by_edit_limit(load: Load, *, edits_by_channel: bool) -> list[list[int]]:
    """Return the numbers of the load's replies, grouped by their common edit limit.

    Args:
        edits_by_channel: True makes a group per channel; False puts all replies into one.
    """
    if not edits_by_channel:
        return [list(range(load.replies))]
    groups: list[list[int]] = [[] for _ in range(load.channels)]
    for number in range(load.replies):
        groups[load.channel(number)].append(number)
    return [group for group in groups if group]


def _summed_age_bound(
    starts: Sequence[float], parts: int, edits: LimitWindow, extra_calls: int, *, is_joint: bool
) -> float:
    """Return a lower bound of the ages' sum over time, in seconds squared.

    Args:
        starts: the time of each reply's first word.
        parts: the number of equal parts into which the time is divided.
        edits: the edit limit that the replies share.
        extra_calls: the number of posts of each reply after the first one.
        is_joint: see `min_joint_age`.
    """
    first, last = min(starts), max(starts) + SPAN_SECONDS
    part = (last - first) / parts
    max_each = int(SPAN_SECONDS / (8 * NETWORK_DELAY_SECONDS)) if is_joint else math.inf
    total = 0.0
    for index in range(parts):
        start = first + index * part
        spans = [min(start + part, begin + SPAN_SECONDS) - max(start, begin) for begin in starts]
        spans = [span for span in spans if span > 1e-9]
        reserved = _min_growing_replies(starts, start, start + part) if is_joint else 0
        ends = sum(start < begin + SPAN_SECONDS < start + part - 1e-9 for begin in starts) if is_joint else 0
        calls = max(0, edits.max_calls(part, is_first=index == 0, reserved=reserved) - ends)
        total += _distribute_calls(spans, calls, extra_calls, max_each)
    return total


def _min_growing_replies(starts: Sequence[float], start: float, end: float) -> int:
    """Return the least number of replies that grow at the same time between two times.

    Args:
        starts: the time of each reply's first word; a reply grows for `SPAN_SECONDS`.
    """
    changes = [start, *(at for begin in starts for at in (begin, begin + SPAN_SECONDS) if start < at < end)]
    return min(sum(begin <= at + 1e-9 and at + 1e-9 < begin + SPAN_SECONDS for begin in starts) for at in changes)


def _distribute_calls(spans: Sequence[float], calls: int, extra_calls: int, max_each: float) -> float:
    """Return the minimum sum of the replies' ages if they share `calls` calls.

    The sum is the integral of the ages over time, in seconds squared.

    Args:
        spans: the seconds for which each reply grows.
        extra_calls: further calls that each reply has for itself.
        max_each: the maximum number of calls of one reply.
    """
    call_counts = [extra_calls] * len(spans)
    ages = [_min_age_integral(span, extra_calls) for span in spans]
    gains = [
        (_min_age_integral(span, extra_calls + 1) - age, index)
        for index, (span, age) in enumerate(zip(spans, ages, strict=True))
    ]
    heapq.heapify(gains)
    for _ in range(calls):
        if not gains:
            break
        gain, index = gains[0]
        call_counts[index] += 1
        ages[index] += gain
        if call_counts[index] >= max_each:
            heapq.heappop(gains)
            continue
        next_gain = _min_age_integral(spans[index], call_counts[index] + 1) - ages[index]
        heapq.heapreplace(gains, (next_gain, index))
    return sum(ages)


def _min_age_integral(span: float, calls: int) -> float:
    """Return the least integral of one reply's age over time, in seconds squared.

    Args:
        span: the seconds for which the reply grows.
        calls: the number of calls, made at the best times.
    """
    if calls == 0:
        return span**2 / 2
    first = min(span, (span + calls * NETWORK_DELAY_SECONDS) / (calls + 1))  # no call is in flight yet
    remaining = span - first
    return first**2 / 2 + remaining**2 / (2 * calls) + remaining * NETWORK_DELAY_SECONDS
