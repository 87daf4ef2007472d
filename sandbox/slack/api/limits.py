"""Rate limits and size limits of Slack.

Slack: docs.slack.dev/apis/web-api/rate-limits and the pages of the methods. Slack's tiers are minimums; the sandbox
allows exactly these.
"""

import json
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from sandbox.rate_limit import RateLimitUsage
from sandbox.slack.api.requests import SlackError

#: `chat.postMessage` truncates a longer text.
MAX_POST_CHARS = 40_000
#: `chat.update` rejects a longer text with `msg_too_long`; undocumented, reported by many.
MAX_UPDATE_CHARS = 4_000
MAX_MARKDOWN_CHARS = 12_000
MAX_BLOCKS = 50
MAX_SECTION_CHARS = 3_000
MAX_HEADER_CHARS = 150
#: The sum of all `markdown` blocks of a message.
MAX_MARKDOWN_BLOCK_CHARS = 12_000
#: All blocks of a message as JSON; `msg_blocks_too_long` is undocumented, but reported.
MAX_BLOCKS_JSON_CHARS = 13_200
MAX_BUTTON_CHARS, MAX_ACCESSIBILITY_LABEL_CHARS, MAX_ACTION_ID_CHARS, MAX_VALUE_CHARS = 75, 75, 255, 2_000
MAX_ELEMENTS = {"actions": 25, "context_actions": 5}
MAX_OPTIONS = 100
#: "The trash icon is the only icon available at this time."
SUPPORTED_ICONS = {"trash"}
#: The title of a task or plan in a stream.
MAX_TASK_CHARS = 256
#: Undocumented limits of a stream, reported by many.
STREAM_LIFETIME_SECONDS = 300.0
MAX_STREAM_BYTES = 11_000


@dataclass(frozen=True, slots=True)
class MethodRate:
    """At most `calls` in a sliding window of `seconds`, per workspace or per channel."""

    calls: int
    seconds: float = 60
    per_channel: bool = False


TIER_2, TIER_3, TIER_4 = MethodRate(20), MethodRate(50), MethodRate(100)
#: "Hundreds of requests per minute" on the pages of some methods.
SPECIAL_TIER = MethodRate(300)

RATES: Mapping[str, Sequence[MethodRate]] = {
    "agents.sessions.rename": [TIER_3],
    "agents.sessions.setStatus": [TIER_3],
    # Documented as Tier 1, one a minute; Slack accepts several reconnects a minute anyway.
    "apps.connections.open": [MethodRate(30)],
    "assistant.threads.setSuggestedPrompts": [TIER_4],
    "auth.test": [SPECIAL_TIER],
    "chat.appendStream": [TIER_4],
    "chat.delete": [TIER_3],
    "chat.getPermalink": [SPECIAL_TIER],
    "chat.postEphemeral": [TIER_4],
    # One a second per channel with short bursts, and hundreds a minute in total.
    "chat.postMessage": [MethodRate(5, 5, per_channel=True), SPECIAL_TIER],
    "chat.startStream": [TIER_2],
    "chat.stopStream": [TIER_2],
    "chat.update": [TIER_3],
    "conversations.history": [TIER_3],
    "conversations.info": [TIER_3],
    "conversations.list": [TIER_2],
    "conversations.open": [TIER_3],
    "conversations.replies": [TIER_3],
    "files.completeUploadExternal": [TIER_4],
    "files.delete": [TIER_3],
    "files.getUploadURLExternal": [TIER_4],
    "files.info": [TIER_4],
    "reactions.add": [TIER_3],
    "reactions.remove": [TIER_2],
    "team.info": [TIER_3],
    "usergroups.list": [TIER_2],
    "users.info": [TIER_4],
    "users.list": [TIER_2],
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
    """Sliding-window rate limits of one app in one workspace."""

    def __init__(self, speed: float, *, is_unlisted: bool = False) -> None:
        self._speed = speed
        self._rates = {**RATES, **UNLISTED_RATES} if is_unlisted else RATES
        self._calls: defaultdict[tuple[str, MethodRate, str], deque[float]] = defaultdict(deque)

    def list_usage(self) -> list[RateLimitUsage]:
        """Return the usage of each window that has calls."""
        usage = []
        for (method, rate, channel), window in self._calls.items():
            span = self._remove_expired(window, rate)
            if window:
                again = window[0] + span - monotonic()
                name = f"{method} {channel}".rstrip()
                usage.append(RateLimitUsage(name, rate.calls - len(window), rate.calls, rate.seconds, again))
        return usage

    def remaining(self, method: str, channel: str) -> tuple[int, int] | None:
        """Return (remaining calls, limit) of the call's window with the fewest remaining."""
        rates = self._rates.get(method, ())
        windows = ((rate, self._calls[method, rate, channel if rate.per_channel else ""]) for rate in rates)
        return min(((rate.calls - len(window), rate.calls) for rate, window in windows), default=None)

    def acquire(self, method: str, channel: str) -> int | None:
        """Count a call; return the seconds for `Retry-After` if a limit rejects it."""
        now = monotonic()
        windows = []
        for rate in self._rates.get(method, ()):
            window = self._calls[method, rate, channel if rate.per_channel else ""]
            span = self._remove_expired(window, rate)
            if len(window) >= rate.calls:
                return max(1, math.ceil(window[0] + span - now))
            windows.append(window)
        for window in windows:
            window.append(now)
        return None

    def _remove_expired(self, window: deque[float], rate: MethodRate) -> float:
        """Remove expired calls from a window; return its length in real seconds."""
        span = rate.seconds / self._speed
        while window and window[0] <= monotonic() - span:
            window.popleft()
        return span


def check_blocks(blocks: object) -> list[dict[str, Any]]:
    """Return the blocks if Slack would accept them.

    Raises:
        SlackError: `invalid_blocks_format`, `invalid_blocks` or `msg_blocks_too_long`.
    """
    if not isinstance(blocks, list) or not all(isinstance(b, dict) and "type" in b for b in blocks):
        raise SlackError("invalid_blocks_format")
    if errors := list(_find_block_errors(blocks)):
        raise SlackError("invalid_blocks", errors=errors)
    if len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > MAX_BLOCKS_JSON_CHARS:
        raise SlackError("msg_blocks_too_long")
    return blocks


def _find_block_errors(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(blocks) > MAX_BLOCKS:
        yield f"no more than {MAX_BLOCKS} items allowed [json-pointer:/blocks]"
    for index, block in enumerate(blocks):
        max_chars = {"section": MAX_SECTION_CHARS, "header": MAX_HEADER_CHARS}.get(block["type"])
        if max_chars is not None and len(_text(block)) > max_chars:
            yield f"must be less than {max_chars + 1} characters [json-pointer:/blocks/{index}/text/text]"
        yield from _find_element_errors(block, f"/blocks/{index}")
        if block["type"] == "section" and not _text(block) and not block.get("fields"):
            yield f"missing required field: text [json-pointer:/blocks/{index}]"
    if sum(len(str(b.get("text", ""))) for b in blocks if b["type"] == "markdown") > MAX_MARKDOWN_BLOCK_CHARS:
        yield f"markdown blocks must be less than {MAX_MARKDOWN_BLOCK_CHARS + 1} characters [json-pointer:/blocks]"


def _find_element_errors(block: Mapping[str, Any], path: str) -> Iterator[str]:
    max_items = MAX_ELEMENTS.get(block["type"])
    if max_items is None:
        return
    if not 1 <= len(block.get("elements", ())) <= max_items:
        yield f"must have 1 to {max_items} items [json-pointer:{path}/elements]"
    ids = [element.get("action_id", "") for element in block.get("elements", ())]
    if len(set(ids)) < len(ids):
        yield f"action_id must be unique [json-pointer:{path}/elements]"
    for number, element in enumerate(block.get("elements", ())):
        here, kind = f"{path}/elements/{number}", element.get("type")
        is_contextual = kind in ("feedback_buttons", "icon_button")
        if is_contextual != (block["type"] == "context_actions"):
            yield f"unsupported type: {kind} [json-pointer:{here}/type]"
        if kind == "icon_button" and element.get("icon") not in SUPPORTED_ICONS:
            yield f"unsupported icon [json-pointer:{here}/icon]"
        if len(str(element.get("action_id", ""))) > MAX_ACTION_ID_CHARS:
            yield f"must be less than {MAX_ACTION_ID_CHARS + 1} characters [json-pointer:{here}/action_id]"
        parts = [element[name] for name in ("positive_button", "negative_button") if name in element]
        options = element.get("options", [])
        if kind == "static_select" and not 1 <= len(options) <= MAX_OPTIONS:
            yield f"must have 1 to {MAX_OPTIONS} items [json-pointer:{here}/options]"
        for part in [*parts, *options, *([element] if kind in ("button", "icon_button") else [])]:
            if not 1 <= len(_text(part)) <= MAX_BUTTON_CHARS:
                yield f"must have 1 to {MAX_BUTTON_CHARS} characters [json-pointer:{here}/text/text]"
            if len(str(part.get("accessibility_label", ""))) > MAX_ACCESSIBILITY_LABEL_CHARS:
                at = f"[json-pointer:{here}/accessibility_label]"
                yield f"must be less than {MAX_ACCESSIBILITY_LABEL_CHARS + 1} characters {at}"
            if len(str(part.get("value", ""))) > MAX_VALUE_CHARS:
                yield f"must be less than {MAX_VALUE_CHARS + 1} characters [json-pointer:{here}/value]"


def _text(block: Mapping[str, Any]) -> str:
    text = block.get("text")
    return str(text.get("text", "")) if isinstance(text, Mapping) else ""
