"""Floors: bounds for any schedule that follow from the rate limits of the sandbox.

They hold for schedules that know the end of each reply in advance. Such a schedule posts a placeholder, edits it (on
Slack it may also append to a stream), and posts each further message that the text needs.
Each bound has the whole budget for itself, although a call cannot serve both growth and ending. So there is a third
bound, `joint_age`, for schedules that do not know the end of a reply, and end it as early as the best one.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.replies.load import TOKENS, TOKENS_A_SECOND, Load, token
from benchmarks.replies.platforms import ONE_WAY
from sandbox.discord.api import limits as discord
from sandbox.discord.api.message_content import MAX_TEXT_LENGTH
from sandbox.slack.api import limits as slack

#: Seconds from the first word to the last.
SPAN = (TOKENS - 1) / TOKENS_A_SECOND

#: Numbers of parts of the time for the best bound.
_CUTS = (1, 2, 3, 4, 5, 6, 8, 12)


@dataclass(frozen=True, slots=True)
class Window:
    """Number of calls in a sliding window, or in one that begins with a call."""

    calls: int
    seconds: float
    slides: bool

    def most(self, span: float, *, is_first: bool, kept: int = 0) -> int:
        """Return the maximum number of calls in `span` seconds.

        Args:
            is_first: whether there were no calls before.
            kept: the number of reserved calls at each moment.
        """
        whole = math.ceil(span / self.seconds - 1e-9)
        return max(0, self.calls - kept) * (whole if self.slides or is_first else whole + 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """Rate limits of a platform.

    Attributes:
        edits: limits of growing edits, per workspace or (`edits_by_channel`) per channel.
        endings: limits of final edits, with the same scope.
        posts: limits per channel.
        posts_in_all: limits per workspace.
        size: the maximum length of a message in characters.
    """

    edits: Window
    endings: Window
    edits_by_channel: bool
    posts: Window
    posts_in_all: Window | None
    size: int


def _slack() -> Rules:
    (edits,), (posts, in_all) = slack.RATES["chat.update"], slack.RATES["chat.postMessage"]
    (appends,), (stops,) = slack.RATES["chat.appendStream"], slack.RATES["chat.stopStream"]
    assert edits.seconds == appends.seconds == stops.seconds, "their windows are counted as one"
    return Rules(
        Window(edits.calls + appends.calls + stops.calls, edits.seconds, slides=True),
        Window(edits.calls + stops.calls, edits.seconds, slides=True),
        False,
        Window(posts.calls, posts.seconds, slides=True),
        Window(in_all.calls, in_all.seconds, slides=True),
        slack.MAX_UPDATE_CHARS,
    )


def _discord() -> Rules:
    edits = discord.RATES["PATCH /channels/{channel}/messages/{message}"]
    posts = discord.RATES["POST /channels/{channel}/messages"]
    by_edits = Window(edits.max_calls, edits.seconds, slides=False)
    return Rules(
        by_edits,
        by_edits,
        True,
        Window(posts.max_calls, posts.seconds, slides=False),
        None,
        MAX_TEXT_LENGTH,
    )


RULES = {"slack": _slack(), "discord": _discord()}


def best_age(load: Load, rules: Rules) -> float:
    """Return the minimum mean age of the shown text, in seconds.

    With `m` calls over a span `s`, a reply has a mean age of at least `s / (2 (m + 1))`, with even gaps, plus the
    network delay. The allowed calls are distributed to minimize the sum. Each division of the time into parts gives a
    bound; the largest one counts.
    """
    return _mean_age(load, rules, is_joint=False)


def joint_age(load: Load, rules: Rules) -> float:
    """Return the minimum mean age of schedules that end each reply as early as the best one.

    Such a schedule does not know the end of a reply, and ends it by an edit or by stopping its stream:

    - it reserves a call for each growing reply. With `n` growing replies, `n` calls of a window show no text, and each
      ending takes one more;
    - it has one call of a reply in flight, for two network delays. An ending waits for it. Over all possible endings,
      `m` calls delay by a mean of `m (2 way)^2 / (2 s)`. The bound allows a quarter of `way`, so `m` is at most
      `s / (8 way)`.
    """
    return _mean_age(load, rules, is_joint=True)


def _mean_age(load: Load, rules: Rules, *, is_joint: bool) -> float:
    further = messages(rules) - 1
    total = 0.0
    for numbers in _shares(load, edits_by_channel=rules.edits_by_channel):
        begins = [number * load.step for number in numbers]
        total += max(_age(begins, cuts, rules.edits, further, is_joint=is_joint) for cuts in _CUTS)
    return total / load.replies / SPAN


def messages(rules: Rules) -> int:
    """Return the number of messages of a reply."""
    return math.ceil(sum(len(token(0, position)) for position in range(TOKENS)) / rules.size)


def best_ends(load: Load, rules: Rules) -> list[float]:
    """Return the seconds from each last word to the final text in the best schedule.

    First come, first served, with unused budgets. A reply ends by an edit or, with several messages, by the post of its
    last one, whichever is possible earlier.
    """
    everywhere = [Lane(rules.endings)]
    edits = [[Lane(rules.endings)] if rules.edits_by_channel else everywhere for _ in range(load.channels)]
    in_all = [Lane(rules.posts_in_all)] if rules.posts_in_all else []
    posts = [[Lane(rules.posts), *in_all] for _ in range(load.channels)]
    waits = []
    for number in range(load.replies):
        ended, channel = number * load.step + SPAN, load.channel(number)
        ways = [posts[channel], edits[channel]] if messages(rules) > 1 else [edits[channel]]
        earliest = [max(lane.earliest(ended) for lane in way) for way in ways]
        at = min(earliest)
        for lane in ways[earliest.index(at)]:
            lane.take(at)
        waits.append(at - ended + ONE_WAY)
    return waits


@dataclass(slots=True)
class Lane:
    """Window with the calls in it.

    The end of a window that begins with a call may touch the start of the next one: then two bursts are adjacent. Any
    time `x` has at most `calls * (floor(x / seconds) + 2)` calls.
    """

    window: Window
    taken: list[float] = field(default_factory=list)

    def earliest(self, at: float) -> float:
        """Return the earliest time from `at` on for another call."""
        calls, earliest = self.window.calls, at
        for windows in range(1, len(self.taken) // calls + 1):
            back = calls * (windows if self.window.slides else windows + 1)
            if back <= len(self.taken):
                earliest = max(earliest, self.taken[-back] + windows * self.window.seconds)
        return earliest

    def take(self, at: float) -> None:
        self.taken.append(at)


def _shares(load: Load, *, edits_by_channel: bool) -> list[list[int]]:
    """Return the replies grouped by shared edit limit."""
    if not edits_by_channel:
        return [list(range(load.replies))]
    shares: list[list[int]] = [[] for _ in range(load.channels)]
    for number in range(load.replies):
        shares[load.channel(number)].append(number)
    return [share for share in shares if share]


def _age(begins: Sequence[float], cuts: int, edits: Window, further: int, *, is_joint: bool) -> float:
    """Return the bound of the summed ages for a division into `cuts` parts (seconds squared)."""
    first, last = min(begins), max(begins) + SPAN
    part = (last - first) / cuts
    most_each = int(SPAN / (8 * ONE_WAY)) if is_joint else math.inf
    total = 0.0
    for cut in range(cuts):
        start = first + cut * part
        spans = [min(start + part, begin + SPAN) - max(start, begin) for begin in begins]
        spans = [span for span in spans if span > 1e-9]
        kept = _always_said(begins, start, start + part) if is_joint else 0
        ends = sum(start < begin + SPAN < start + part - 1e-9 for begin in begins) if is_joint else 0
        calls = max(0, edits.most(part, is_first=cut == 0, kept=kept) - ends)
        total += _dealt(spans, calls, further, most_each)
    return total


def _always_said(begins: Sequence[float], start: float, end: float) -> int:
    """Return the minimum number of growing replies between two times."""
    changes = [start, *(at for begin in begins for at in (begin, begin + SPAN) if start < at < end)]
    return min(sum(begin <= at + 1e-9 and at + 1e-9 < begin + SPAN for begin in begins) for at in changes)


def _dealt(spans: Sequence[float], calls: int, further: int, most_each: float) -> float:
    """Return the minimum sum of ages with `calls` shared calls and `further` ones per reply."""
    given = [further] * len(spans)
    ages = [_least(span, further) for span in spans]
    gains = [
        (_least(span, further + 1) - age, index) for index, (span, age) in enumerate(zip(spans, ages, strict=True))
    ]
    heapq.heapify(gains)
    for _ in range(calls):
        if not gains:
            break
        gain, index = gains[0]
        given[index] += 1
        ages[index] += gain
        if given[index] >= most_each:
            heapq.heappop(gains)
            continue
        following = _least(spans[index], given[index] + 1) - ages[index]
        heapq.heapreplace(gains, (following, index))
    return sum(ages)


def _least(span: float, calls: int) -> float:
    """Return the integral of the age over a span with `calls` calls at the best times."""
    if calls == 0:
        return span**2 / 2
    first = min(span, (span + calls * ONE_WAY) / (calls + 1))  # no call is in flight yet
    rest = span - first
    return first**2 / 2 + rest**2 / (2 * calls) + rest * ONE_WAY
