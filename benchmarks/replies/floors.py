"""How good any schedule could be: bounds that follow from the limits alone, which the sandbox enforces.

They are for schedules that know beforehand when each reply ends, and that show a reply as a message that stands before
there is text, edits of it (in Slack, appends to it as well, if it is streamed), and one post for each further message
that the text needs.
Each bound has the whole budget for itself: what shows text while it grows cannot be kept for the end as well. So there
is a third one, `joint_age`, for schedules that do not know when a reply ends, and end it as soon as the best would.
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

#: From the first word to the last.
SPAN = (TOKENS - 1) / TOKENS_A_SECOND

#: Into how many parts the time is cut, to find the best bound.
_CUTS = (1, 2, 3, 4, 5, 6, 8, 12)


@dataclass(frozen=True, slots=True)
class Window:
    """So many calls in so many seconds: in any such time (it slides), or in one that begins with a call."""

    calls: int
    seconds: float
    slides: bool

    def most(self, span: float, *, is_first: bool, kept: int = 0) -> int:
        """How many calls `span` seconds may hold, at most.

        Args:
            is_first: whether there was none before them.
            kept: how many calls of its windows are unused at each moment.
        """
        whole = math.ceil(span / self.seconds - 1e-9)
        return max(0, self.calls - kept) * (whole if self.slides or is_first else whole + 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a platform allows.

    Attributes:
        edits: what lets a message show more, for all of a workspace, or (`edits_by_channel`) for each channel.
        endings: what lets it show its last word, for as many.
        posts: for each channel.
        posts_in_all: for all of a workspace.
        size: of one message, in characters.
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
        slack.UPDATED_TEXT,
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
    """The least mean age of the shown text that any schedule can have, in seconds.

    A reply of which `m` calls show text is, over a span `s`, at best `s / (2 (m + 1))` old, with even gaps; what a
    call needs to get to the platform comes on top. The calls that the windows allow are dealt out to the replies
    so that the sum is least. Over the whole time at once, or over each part of it as if all began it fresh: each
    such sum is a bound, and the largest of them counts.
    """
    return _mean_age(load, rules, is_joint=False)


def joint_age(load: Load, rules: Rules) -> float:
    """The least mean age that a schedule can have which ends each reply as soon as the best schedule would.

    It does not know when a reply ends, and it ends it by an edit (or by stopping its stream). So

    - at each moment, it has an unused call for each reply that is being said: as long as `n` are, at most `n` less
      than a window's calls show text, and each end takes one more from those of its time;
    - it makes one call of a reply at a time, of which the answer comes after two ways. An end that comes meanwhile
      waits for it. Over all moments at which a reply may end, `m` calls make for a mean of `m (2 way)^2 / (2 s)`;
      that is allowed to be a quarter of the way, so that `m` is `s / (8 way)` at the most.
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
    """How many messages a reply needs."""
    return math.ceil(sum(len(token(0, position)) for position in range(TOKENS)) / rules.size)


def best_ends(load: Load, rules: Rules) -> list[float]:
    """Seconds from each reply's last word to its final text, in the schedule that has the least mean and worst.

    First come, first served, with budgets that nobody has touched before; each by an edit or, if the reply needs
    more messages than one, by the post of its last one, whichever may go earlier.
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
    """One window, and what has gone through it.

    A window that begins with a call may lie so that its last moment and the next one's first are one: then two
    bursts go at once. In any time `x` there are at most `calls * (floor(x / seconds) + 2)`.
    """

    window: Window
    taken: list[float] = field(default_factory=list)

    def earliest(self, at: float) -> float:
        """From when on, and not before `at`, one more may go."""
        calls, earliest = self.window.calls, at
        for windows in range(1, len(self.taken) // calls + 1):
            back = calls * (windows if self.window.slides else windows + 1)
            if back <= len(self.taken):
                earliest = max(earliest, self.taken[-back] + windows * self.window.seconds)
        return earliest

    def take(self, at: float) -> None:
        self.taken.append(at)


def _shares(load: Load, *, edits_by_channel: bool) -> list[list[int]]:
    """The replies, by whom they share their edits with."""
    if not edits_by_channel:
        return [list(range(load.replies))]
    shares: list[list[int]] = [[] for _ in range(load.channels)]
    for number in range(load.replies):
        shares[load.channel(number)].append(number)
    return [share for share in shares if share]


def _age(begins: Sequence[float], cuts: int, edits: Window, further: int, *, is_joint: bool) -> float:
    """The bound over the time cut in so many parts: the sum of all ages, in seconds times seconds."""
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
    """How many replies are being said at each moment between the two, at the least."""
    changes = [start, *(at for begin in begins for at in (begin, begin + SPAN) if start < at < end)]
    return min(sum(begin <= at + 1e-9 and at + 1e-9 < begin + SPAN for begin in begins) for at in changes)


def _dealt(spans: Sequence[float], calls: int, further: int, most_each: float) -> float:
    """The least sum of ages if so many calls are dealt out, and `further` more to each, up to `most_each`."""
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
    """The integral of the age over a span, if so many calls show text in it at the best moments."""
    if calls == 0:
        return span**2 / 2
    first = min(span, (span + calls * ONE_WAY) / (calls + 1))  # nothing is on its way yet
    rest = span - first
    return first**2 / 2 + rest**2 / (2 * calls) + rest * ONE_WAY
