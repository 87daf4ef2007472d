"""Placing of entries that no person wrote: checks the author, and posts the message that the answer follows."""

import logging
import time
from dataclasses import replace
from typing import Protocol

from channels.access import AccessDecision, AccessPolicy
from channels.base import Priority
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.inline_renderer import escape_markdown
from channels.markdown.times import format_time
from channels.platform import Platform
from channels.rate_limits.retries import RefusedError
from channels.replies.chunk_planner import ChunkPlanner
from core.messages.inbox_message import InboxMessage
from core.messages.trigger import LATE_SECONDS, JobOutcome, Trigger, TriggerKind
from core.turns.automation.schedules import Schedule, ScheduleStore

log = logging.getLogger(__name__)

#: Seconds before an entry was stored from which its header is looked up: a platform has another clock.
LOOKUP_MARGIN_SECONDS = 5.0

_HEADERS: dict[TriggerKind, str] = {"schedule": words.SCHEDULE_HEADER, "hook": words.HOOK_HEADER}

_JOB_HEADERS: dict[JobOutcome, str] = {
    "done": words.JOB_DONE,
    "failed": words.JOB_FAILED,
    "interrupted": words.JOB_INTERRUPTED,
}


class Conversations(Protocol):
    """People and places of one platform; each method raises `SurfaceError`."""

    @property
    def closed_place_codes(self) -> frozenset[str]:
        """Codes of a `RefusedError` for a place that was deleted or archived, or from which the bot was removed."""
        ...

    async def resolve(self, message: InboxMessage) -> InboxMessage | None:
        """Return an entry with its author's present roles, and the address and location where it begins.

        None if the author is not on the platform any more.
        """
        ...

    async def begin(self, message: InboxMessage, header: str, *, may_exist: bool) -> InboxMessage:
        """Post the header of an entry, which notifies its author, and return the message that a turn is to answer.

        Args:
            header: a text in the platform's dialect.
            may_exist: whether an earlier try may have posted the header; it is then looked up.
        """
        ...


class TriggerPlacer:
    """Places the entries of a platform: see `core.inbox.triggered`."""

    def __init__(
        self, platform: Platform, conversations: Conversations, access_policy: AccessPolicy, schedules: ScheduleStore
    ) -> None:
        self._platform = platform
        self._conversations = conversations
        self._access_policy = access_policy
        self._schedules = schedules

    async def place(self, message: InboxMessage, may_exist: bool) -> InboxMessage | None:
        """Return the message that a turn is to answer; None if the entry ends here (logged, unless it is plain).

        A schedule of a person who has left or has no access ends as well, and so does one whose place is closed.

        Raises:
            SurfaceError: the platform cannot be reached.
        """
        trigger = message.trigger
        assert trigger is not None, "no person wrote it"
        try:
            resolved = await self._conversations.resolve(message)
            if resolved is None or not self._may_begin(resolved):
                await self._end(message, trigger, f"{message.author} has left or has no access")
                return None
            locale = await words.resolve_locale(self._platform.get_locale(resolved))
            header = self._render(resolved, trigger, words.messages_for(locale))
            begun = await self._conversations.begin(resolved, header, may_exist=may_exist)
        except RefusedError as refusal:
            if refusal.code in self._conversations.closed_place_codes:
                await self._end(message, trigger, f"its place {message.place} is closed ({refusal})")
            else:
                log.error("%s does not begin: %s", message.event_key, refusal)
            return None
        return None if trigger.is_plain else replace(begun, sent_at=time.time())

    async def _end(self, message: InboxMessage, trigger: Trigger, reason: str) -> None:
        """Log why an entry does not begin, and delete its schedule, which would fail the next time, too."""
        is_deleted = trigger.kind == "schedule" and isinstance(await self._schedules.delete(trigger.id), Schedule)
        suffix = "; its schedule is deleted" if is_deleted else ""
        log.warning("%s does not begin: %s%s", message.event_key, reason, suffix)

    def _may_begin(self, message: InboxMessage) -> bool:
        """Return whether the author has access now; the operator's hooks begin anywhere."""
        if message.is_bot:
            return True
        decision = self._access_policy.check(message.actor_or_author, message.location)
        return decision is AccessDecision.ALLOWED

    def _render(self, message: InboxMessage, trigger: Trigger, say: MessageCatalog) -> str:
        if trigger.kind == "job":
            lines = [say(_JOB_HEADERS[trigger.outcome], title=trigger.title)]
        else:
            title = message.text if trigger.is_plain else escape_markdown(trigger.title)
            lines = [say(_HEADERS[trigger.kind], title=title)]
        if time.time() - trigger.due_at > LATE_SECONDS:
            lines.append(say(words.LATE, time=format_time(trigger.due_at)))
        planner = ChunkPlanner(self._platform.create_surface(message.address).limits)
        planner.feed("\n".join(lines))
        return planner.plan(Priority.FINAL).chunks[0].text
