"""Status and title of a thread as Slack's agent session, and suggested prompts.

Slack: docs.slack.dev/ai/agent-sessions. While an agent session is `processing`, Slack shows this status and its own
stop button. Slack: docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts. An agent's prompts belong to
no thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from cachetools import TTLCache

from channels.base import Priority
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import RefusedError
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_3, TIER_4
from core.concurrency.tasks import BackgroundTasks
from core.errors import SurfaceError

log = logging.getLogger(__name__)

STATUS_METHOD = "agents.sessions.setStatus"

#: The most workspaces in memory in which Slack refused a status (the app is no agent there), and the seconds for which
#: no status is set in them.
MAX_REFUSED, REFUSED_SECONDS = 10_000, 600.0

PROMPTS_METHOD = "assistant.threads.setSuggestedPrompts"


class AssistantThreads:
    """Sets the agent session status of threads, in the background, during replies.

    The status is only set if the rate limit has a slot for the call that resets it. Failures are logged. After a
    refusal by Slack, no status is set in that workspace for `REFUSED_SECONDS`.
    """

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._refused: TTLCache[str, bool, float] = TTLCache(MAX_REFUSED, REFUSED_SECONDS)
        self._processing: set[tuple[str, str, str]] = set()
        self._work = BackgroundTasks()

    def get_stop_arguments(self, address: Mapping[str, Any]) -> dict[str, str]:
        """Return arguments of `chat.stopStream` by which a thread stays `processing`.

        Slack: docs.slack.dev/reference/methods/chat.stopStream. By default the method sets the status to `active`: the
        stop button would disappear while the reply continues.
        """
        is_set = _get_key(address) in self._processing and str(address["team"]) not in self._refused
        return {"session_status": "processing"} if is_set else {}

    @contextmanager
    def show_processing(self, address: Mapping[str, Any], is_resumed: Callable[[], bool]) -> Iterator[None]:
        """Set a thread's status to `processing` in the `with` block, to `active` after it.

        The calls are made in the background. `is_resumed` returns whether another process may have set the status; it
        is then set to `active` even if this process did not set it.
        """
        team = str(address["team"])
        limiter = self._api.get_limiter((STATUS_METHOD, team), TIER_3)
        if not address["thread_ts"] or team in self._refused:
            yield
            return
        task: asyncio.Task[None] | None = None
        with ExitStack() as reserve:
            if limiter.can_reserve(2) and limiter.try_acquire(Priority.BACKFILL):
                reserve.enter_context(limiter.reserve())
                task = self._set(address, "processing", limiter, has_slot=True)
                self._processing.add(_get_key(address))
            try:
                yield
            finally:
                self._processing.discard(_get_key(address))
                if task is not None or is_resumed():
                    self._set(address, "active", limiter, after=task)

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for the running calls to Slack, then cancel them."""
        await self._work.drain(seconds)

    def _set(
        self,
        address: Mapping[str, Any],
        status: str,
        limiter: RateLimiter,
        *,
        has_slot: bool = False,
        after: asyncio.Task[None] | None = None,
    ) -> asyncio.Task[None]:
        """Set a thread's status in a background task, once the task `after` has ended."""

        async def set_status() -> None:
            if after is not None:
                await asyncio.wait([after])
            await self._call(address, status, limiter, has_slot=has_slot)

        task = asyncio.create_task(set_status(), name=f"thread {status}")
        self._work.add(task)
        return task

    async def _call(self, address: Mapping[str, Any], status: str, limiter: RateLimiter, *, has_slot: bool) -> None:
        arguments = {"channel_id": address["channel"], "thread_ts": address["thread_ts"], "status": status}
        if title := address.get("title"):  # Slack: used by the first call of a thread
            arguments["title"] = title
        try:
            await self._api.for_team(str(address["team"])).call(STATUS_METHOD, arguments, limiter, has_slot=has_slot)
        except RefusedError as refusal:
            log.warning("%s; the status of threads is not set for %g s", refusal, REFUSED_SECONDS)
            self._refused[str(address["team"])] = True
        except SurfaceError as error:
            log.warning("the status of a thread cannot be set: %s", error)


def _get_key(address: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(address["team"]), str(address["channel"]), str(address["thread_ts"])


async def suggest_prompts(api: SlackApi, team: str, channel: str, prompts: Sequence[str]) -> None:
    """Set the suggested prompts in the direct messages with a user; a failure is only logged."""
    arguments = {"channel_id": channel, "prompts": [{"title": prompt, "message": prompt} for prompt in prompts]}
    try:
        await api.for_team(team).call(
            PROMPTS_METHOD, arguments, api.get_limiter((PROMPTS_METHOD, team), TIER_4), priority=Priority.BACKFILL
        )
    except SurfaceError as error:
        log.warning("prompts cannot be suggested: %s", error)
