"""Slack's rate limits, and its size limits of messages and streams.

Slack: docs.slack.dev/apis/web-api/rate-limits and the pages of the methods. Slack's tiers are minimums; the simulator
allows exactly these.
"""

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from chatrig.observable import RateLimitUsage

#: `chat.postMessage` truncates a longer text.
MAX_POST_CHARS = 40_000
#: `chat.update` rejects a longer text with `msg_too_long`; undocumented, reported by many.
MAX_UPDATE_CHARS = 4_000
MAX_MARKDOWN_CHARS = 12_000
MAX_ATTACHMENTS = 100
#: The title of a task or plan in a stream.
MAX_TASK_CHARS = 256
#: Undocumented limits of a stream, reported by many.
STREAM_LIFETIME_SECONDS = 300.0
MAX_STREAM_BYTES = 11_000


@dataclass(frozen=True, slots=True)
class MethodRate:
    """Rate limit of a method: at most `max_calls` in a sliding window of `seconds`.

    Attributes:
        per_channel: whether each channel has a window of its own; otherwise the workspace has one.
    """

    max_calls: int
    seconds: float = 60
    per_channel: bool = False


TIER_2, TIER_3, TIER_4 = MethodRate(20), MethodRate(50), MethodRate(100)
#: "Hundreds of requests per minute" on the pages of some methods.
SPECIAL_TIER = MethodRate(300)

RATES: Mapping[str, Sequence[MethodRate]] = {
    "agents.sessions.rename": [TIER_3],
    "agents.sessions.setStatus": [TIER_3],
    "api.test": [TIER_4],
    # Documented as Tier 1, one a minute; Slack accepts several reconnects a minute anyway.
    "apps.connections.open": [MethodRate(30)],
    "assistant.threads.setStatus": [SPECIAL_TIER],
    "assistant.threads.setSuggestedPrompts": [TIER_4],
    "assistant.threads.setTitle": [TIER_4],
    "auth.test": [SPECIAL_TIER],
    "bots.info": [TIER_3],
    "chat.appendStream": [TIER_4],
    "chat.delete": [TIER_3],
    "chat.deleteScheduledMessage": [TIER_3],
    "chat.getPermalink": [SPECIAL_TIER],
    "chat.meMessage": [TIER_3],
    "chat.postEphemeral": [TIER_4],
    # One a second per channel with short bursts, and hundreds a minute in total.
    "chat.postMessage": [MethodRate(5, 5, per_channel=True), SPECIAL_TIER],
    "chat.scheduledMessages.list": [TIER_3],
    "chat.scheduleMessage": [TIER_3],
    "chat.startStream": [TIER_2],
    "chat.stopStream": [TIER_2],
    "chat.update": [TIER_3],
    "conversations.history": [TIER_3],
    "conversations.info": [TIER_3],
    "conversations.join": [TIER_3],
    "conversations.list": [TIER_2],
    "conversations.members": [TIER_4],
    "conversations.open": [TIER_3],
    "conversations.replies": [TIER_3],
    "emoji.list": [TIER_2],
    "files.completeUploadExternal": [TIER_4],
    "files.delete": [TIER_3],
    "files.getUploadURLExternal": [TIER_4],
    "files.info": [TIER_4],
    "files.list": [TIER_3],
    "openid.connect.token": [TIER_4],
    "openid.connect.userInfo": [TIER_4],
    "pins.add": [TIER_2],
    "pins.list": [TIER_2],
    "pins.remove": [TIER_2],
    "reactions.add": [TIER_3],
    "reactions.get": [TIER_3],
    "reactions.list": [TIER_2],
    "reactions.remove": [TIER_2],
    "team.info": [TIER_3],
    "usergroups.list": [TIER_2],
    "users.conversations": [TIER_3],
    "users.info": [TIER_4],
    "users.list": [TIER_2],
    "users.lookupByEmail": [TIER_3],
    "users.profile.get": [TIER_4],
    "views.open": [TIER_4],
    "views.publish": [TIER_4],
    "views.push": [TIER_4],
    "views.update": [TIER_4],
}


MAX_PAGE_SIZE = 1_000

#: Limits of commercially distributed apps outside the Marketplace. Slack: the pages of both methods.
UNLISTED_RATES: Mapping[str, Sequence[MethodRate]] = {
    "conversations.history": [MethodRate(1)],
    "conversations.replies": [MethodRate(1)],
}
UNLISTED_MAX_PAGE_SIZE = 15


class SlackRateLimits:
    """Rate limits of one app in one workspace, in sliding windows.

    Args:
        speed: factor by which windows are shorter than Slack's.
        is_unlisted: whether the app is sold outside Slack's Marketplace, with lower limits for reading messages.
    """

    def __init__(self, speed: float, *, is_unlisted: bool = False) -> None:
        self._speed = speed
        self._rates = {**RATES, **UNLISTED_RATES} if is_unlisted else RATES
        self._calls: defaultdict[tuple[str, MethodRate, str], deque[float]] = defaultdict(deque)

    def clear(self) -> None:
        """Forget all calls, so that each window is empty."""
        self._calls.clear()

    def list_usage(self) -> list[RateLimitUsage]:
        """Return the use of each rate-limit window that has calls."""
        usage = []
        for (method, rate, channel), window in self._calls.items():
            span = self._remove_expired(window, rate)
            if window:
                seconds = window[0] + span - monotonic()
                name = f"{method} {channel}".rstrip()
                usage.append(RateLimitUsage(name, rate.max_calls - len(window), rate.max_calls, rate.seconds, seconds))
        return usage

    def remaining(self, method: str, channel: str) -> tuple[int, int] | None:
        """Return the calls that a method's rate limits allow after the last `acquire`.

        Args:
            channel: the id of the channel of the call; "" without one.

        Returns:
            (remaining calls, calls per window) of the window with the fewest remaining calls; None for a method without
            rate limits.
        """
        rates = self._rates.get(method, ())
        windows = ((rate, self._calls[method, rate, channel if rate.per_channel else ""]) for rate in rates)
        return min(((rate.max_calls - len(window), rate.max_calls) for rate, window in windows), default=None)

    def acquire(self, method: str, channel: str) -> int | None:
        """Count a call of a method, unless a rate limit rejects it.

        Args:
            channel: the id of the channel of the call; "" without one.

        Returns:
            The real seconds for `Retry-After`, at least 1, if the call is rejected; None otherwise.
        """
        now = monotonic()
        windows = []
        for rate in self._rates.get(method, ()):
            window = self._calls[method, rate, channel if rate.per_channel else ""]
            span = self._remove_expired(window, rate)
            if len(window) >= rate.max_calls:
                return max(1, math.ceil(window[0] + span - now))
            windows.append(window)
        for window in windows:
            window.append(now)
        return None

    def _remove_expired(self, window: deque[float], rate: MethodRate) -> float:
        """Remove calls that are older than a window; return its length in real seconds.

        Args:
            window: times of the calls, on the monotonic clock.
        """
        span = rate.seconds / self._speed
        while window and window[0] <= monotonic() - span:
            window.popleft()
        return span
