"""Slack's agent session of a thread: its status, its title, and suggested prompts.

Slack: docs.slack.dev/ai/agent-sessions. While a session is `processing`, Slack shows so beside its own stop button.
Slack: docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts. An agent's prompts belong to no thread.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from cachetools import TTLCache

from channels.base import Priority
from channels.rate_limits.caller import RefusedError
from channels.rate_limits.limiter import RateLimiter
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_3, TIER_4
from core.concurrency.tasks import Work
from core.errors import SurfaceError

log = logging.getLogger(__name__)

METHOD = "agents.sessions.setStatus"

#: Workspaces in which Slack has refused a status, as the app is no agent there, and the seconds for which none is set.
MAX_REFUSED, REFUSED_SECONDS = 10_000, 600.0

PROMPTS_METHOD = "assistant.threads.setSuggestedPrompts"


class Sessions:
    """Tells Slack when a reply is begun in a thread and when it has ended; nobody waits for it.

    That it has begun is told only if there is a call to spare, and another one for the end.
    """

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._refused: TTLCache[str, bool, float] = TTLCache(MAX_REFUSED, REFUSED_SECONDS)
        self._busy = Counter[tuple[str, str]]()
        self._begun = set[tuple[str, str]]()  # the threads of which Slack may take it that something is being done
        self._telling: dict[tuple[str, str], asyncio.Task[None]] = {}  # by thread, the latest
        self._work = Work()

    @contextmanager
    def busy(self, address: Mapping[str, Any], was_begun: Callable[[], bool]) -> Iterator[None]:
        """Something is being done in the thread of this address, for as long as this is entered.

        Args:
            was_begun: whether another process may have told that it was begun; then its end is told in any case.
        """
        team, thread = str(address["team"]), _thread(address)
        budget = self._api.budget((METHOD, team), TIER_3)
        if not address["thread_ts"] or team in self._refused:
            yield
            return
        with ExitStack() as kept:
            if not self._busy[thread] and budget.can_reserve(2) and budget.try_acquire(Priority.LOOK):
                kept.enter_context(budget.reserve())
                self._begun.add(thread)
                self._tell(address, "processing", budget, is_admitted=True)
            self._busy[thread] += 1
            try:
                yield
            finally:
                self._busy[thread] -= 1
                if was_begun():
                    self._begun.add(thread)
                if not self._busy[thread]:
                    del self._busy[thread]
                    self._rest(address, budget)

    def rests(self, address: Mapping[str, Any]) -> None:
        """Nothing is done in the thread of this address, whatever Slack was told."""
        self._begun.add(_thread(address))
        self._rest(address, self._api.budget((METHOD, str(address["team"])), TIER_3))

    async def settle(self, seconds: float) -> None:
        """Wait for what is being told as `Work.end` does."""
        await self._work.end(seconds)

    def _rest(self, address: Mapping[str, Any], budget: RateLimiter) -> None:
        if _thread(address) in self._begun:
            self._begun.discard(_thread(address))
            self._tell(address, "active", budget, is_admitted=False)

    def _tell(self, address: Mapping[str, Any], status: str, budget: RateLimiter, *, is_admitted: bool) -> None:
        """Tell it behind what is being told of that thread."""
        thread = _thread(address)
        set_ = partial(self._set, address, status, budget, is_admitted=is_admitted)
        task = asyncio.create_task(_behind(self._telling.get(thread), set_), name=f"session {status}")
        self._telling[thread] = task
        self._work.watch(task)
        task.add_done_callback(partial(self._told, thread))

    def _told(self, thread: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._telling.get(thread) is task:
            del self._telling[thread]

    async def _set(self, address: Mapping[str, Any], status: str, budget: RateLimiter, *, is_admitted: bool) -> None:
        about = {"channel_id": address["channel"], "thread_ts": address["thread_ts"], "status": status}
        if title := address.get("title"):  # Slack: it is of use to a session that is not there yet
            about["title"] = title
        try:
            await self._api.at(str(address["team"])).call(METHOD, about, budget, is_admitted=is_admitted)
        except RefusedError as refusal:
            log.warning("%s; for a while, Slack is not told where I am at work", refusal)
            self._refused[str(address["team"])] = True
        except SurfaceError as error:
            log.warning("Slack does not know where I am at work: %s", error)


def _thread(address: Mapping[str, Any]) -> tuple[str, str]:
    return str(address["channel"]), str(address["thread_ts"])


async def _behind(other: asyncio.Task[None] | None, work: Callable[[], Awaitable[None]]) -> None:
    if other is not None:
        await asyncio.wait([other])
    await work()


async def suggest(api: SlackApi, team: str, channel: str, prompts: Sequence[str]) -> None:
    """Suggest to say these, in direct messages. What cannot be suggested now is so when they are opened again."""
    said = {"channel_id": channel, "prompts": [{"title": prompt, "message": prompt} for prompt in prompts]}
    try:
        await api.at(team).call(
            PROMPTS_METHOD, said, api.budget((PROMPTS_METHOD, team), TIER_4), priority=Priority.LOOK
        )
    except SurfaceError as error:
        log.warning("nothing is suggested to who opens the direct messages: %s", error)
