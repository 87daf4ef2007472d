"""How often and how much: Slack's published rate limits and sizes.

Slack: docs.slack.dev/apis/web-api/rate-limits and the pages of the methods. The tiers are promised as "at least";
the sandbox grants just that.
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

#: `chat.postMessage` cuts a longer text off; characters, like all sizes here.
MAX_POST_CHARS = 40_000
#: `chat.update` refuses a longer text with `msg_too_long`: not published, seen by many.
MAX_UPDATE_CHARS = 4_000
MAX_MARKDOWN_CHARS = 12_000
MAX_BLOCKS = 50
MAX_SECTION_CHARS = 3_000
MAX_HEADER_CHARS = 150
#: Of all `markdown` blocks of one message together.
MAX_MARKDOWN_BLOCK_CHARS = 12_000
#: Of all blocks of one message as JSON, with `msg_blocks_too_long`: not published, reported.
MAX_BLOCKS_JSON_CHARS = 13_200
#: Of what is on a button, of what a screen reader says of it, and of the names of an action and of what it brings.
MAX_BUTTON_CHARS, MAX_ACCESSIBILITY_LABEL_CHARS, MAX_ACTION_ID_CHARS, MAX_VALUE_CHARS = 75, 75, 255, 2_000
#: Elements of a block of actions, of one of contextual ones, and options of a select.
MAX_ELEMENTS = {"actions": 25, "context_actions": 5}
MAX_OPTIONS = 100
#: "The trash icon is the only icon available at this time."
SUPPORTED_ICONS = {"trash"}
#: Of the title of a task or a plan in a stream.
MAX_TASK_CHARS = 256
#: Seconds that a stream lives, and the most that it holds, in bytes: not published, reported by many.
STREAM_LIFETIME_SECONDS = 300.0
MAX_STREAM_BYTES = 11_000


@dataclass(frozen=True, slots=True)
class MethodRate:
    """At most `calls` in any `seconds`, for each workspace or for each channel in it."""

    calls: int
    seconds: float = 60
    per_channel: bool = False


TIER_2, TIER_3, TIER_4 = MethodRate(20), MethodRate(50), MethodRate(100)
#: "Hundreds of requests per minute", as the pages of some methods have it.
SPECIAL_TIER = MethodRate(300)

RATES: Mapping[str, Sequence[MethodRate]] = {
    "agents.sessions.rename": [TIER_3],
    "agents.sessions.setStatus": [TIER_3],
    # Tier 1 on paper, which is one; a client that reconnects some times in a minute is nevertheless served.
    "apps.connections.open": [MethodRate(30)],
    "assistant.threads.setSuggestedPrompts": [TIER_4],
    "auth.test": [SPECIAL_TIER],
    "chat.appendStream": [TIER_4],
    "chat.delete": [TIER_3],
    "chat.getPermalink": [SPECIAL_TIER],
    "chat.postEphemeral": [TIER_4],
    # One a second for each channel, short bursts allowed, and hundreds a minute in all.
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
}


#: How many items a page holds, at the most.
MAX_PAGE_SIZE = 1_000

#: What an app has instead that is distributed commercially and is not in the Marketplace, and how many messages a page
#: holds for it at the most. Slack: the pages of both methods.
UNLISTED_RATES: Mapping[str, Sequence[MethodRate]] = {
    "conversations.history": [MethodRate(1)],
    "conversations.replies": [MethodRate(1)],
}
UNLISTED_MAX_PAGE_SIZE = 15


class SlackRateLimits:
    """Counts the calls of one app in one workspace; windows pass `speed` times as fast."""

    def __init__(self, speed: float, *, is_unlisted: bool = False) -> None:
        self._speed = speed
        self._rates = {**RATES, **UNLISTED_RATES} if is_unlisted else RATES
        self._calls: defaultdict[tuple[str, MethodRate, str], deque[float]] = defaultdict(deque)

    def list_usage(self) -> list[RateLimitUsage]:
        """What is left in each window that calls stand in, by method and channel."""
        found = []
        for (method, rate, channel), window in self._calls.items():
            span = self._remove_expired(window, rate)
            if window:
                again = window[0] + span - monotonic()
                name = f"{method} {channel}".rstrip()
                found.append(RateLimitUsage(name, rate.calls - len(window), rate.calls, rate.seconds, again))
        return found

    def remaining(self, method: str, channel: str) -> tuple[int, int] | None:
        """What is left, of how many, in the scarcest of a call's windows."""
        rates = self._rates.get(method, ())
        windows = ((rate, self._calls[method, rate, channel if rate.per_channel else ""]) for rate in rates)
        return min(((rate.calls - len(window), rate.calls) for rate, window in windows), default=None)

    def acquire(self, method: str, channel: str) -> int | None:
        """Count a call in, or say after how many (real, whole) seconds it may come again."""
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
        """Let go of what is out of a window; how long that is, in real seconds."""
        span = rate.seconds / self._speed
        while window and window[0] <= monotonic() - span:
            window.popleft()
        return span


def check_blocks(blocks: object) -> list[dict[str, Any]]:
    """Return the blocks, if Slack would take them.

    Raises:
        SlackError: `invalid_blocks_format`, `invalid_blocks` or `msg_blocks_too_long`.
    """
    if not isinstance(blocks, list) or not all(isinstance(b, dict) and "type" in b for b in blocks):
        raise SlackError("invalid_blocks_format")
    if faults := list(_find_block_errors(blocks)):
        raise SlackError("invalid_blocks", errors=faults)
    if len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > MAX_BLOCKS_JSON_CHARS:
        raise SlackError("msg_blocks_too_long")
    return blocks


def _find_block_errors(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(blocks) > MAX_BLOCKS:
        yield f"no more than {MAX_BLOCKS} items allowed [json-pointer:/blocks]"
    for index, block in enumerate(blocks):
        most = {"section": MAX_SECTION_CHARS, "header": MAX_HEADER_CHARS}.get(block["type"])
        if most is not None and len(_text(block)) > most:
            yield f"must be less than {most + 1} characters [json-pointer:/blocks/{index}/text/text]"
        yield from _find_element_errors(block, f"/blocks/{index}")
        if block["type"] == "section" and not _text(block) and not block.get("fields"):
            yield f"missing required field: text [json-pointer:/blocks/{index}]"
    if sum(len(str(b.get("text", ""))) for b in blocks if b["type"] == "markdown") > MAX_MARKDOWN_BLOCK_CHARS:
        yield f"markdown blocks must be less than {MAX_MARKDOWN_BLOCK_CHARS + 1} characters [json-pointer:/blocks]"


def _find_element_errors(block: Mapping[str, Any], path: str) -> Iterator[str]:
    most = MAX_ELEMENTS.get(block["type"])
    if most is None:
        return
    if not 1 <= len(block.get("elements", ())) <= most:
        yield f"must have 1 to {most} items [json-pointer:{path}/elements]"
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
