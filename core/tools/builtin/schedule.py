"""Built-in tool that schedules a task or a text for later."""

import hashlib
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from google.adk.tools.tool_context import ToolContext

from core.errors import ScheduleError
from core.messages.identity import BOT_PREFIX, find_time_zone
from core.tools.tool import idempotent
from core.turns.automation.context import AutomationContext, find_automation
from core.turns.automation.recurrence import parse_time, to_local
from core.turns.automation.schedules import MAX_TEXT_CHARACTERS, Schedule, create_user_key

#: The number of next times that the model gets.
_SHOWN_TIMES = 3


@idempotent
async def schedule(
    text: str,
    tool_context: ToolContext,
    *,
    at: str = "",
    in_minutes: float = 0,
    repeat: str = "",
    is_task: bool = True,
    to: Literal["here", "direct"] = "here",
    time_zone: str = "",
) -> dict[str, Any]:
    """Schedule a task for yourself, or a text for the person, once or repeatedly.

    Your answer shows people what is scheduled, with a button to undo it. Give at, in_minutes or repeat; repeat may have
    a first time in at.

    Args:
        text: the whole task with all that you need to know then, or the text as the person is to read it.
        at: local time of the person in ISO 8601, such as 2026-11-30T09:00.
        in_minutes: minutes from now, in place of at.
        repeat: RRULE (RFC 5545), such as FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=0; empty for once.
        is_task: true for a task that you are to do then; false for a text that people only read, such as a reminder.
        to: here for this conversation, direct for a direct message to the person.
        time_zone: IANA name, only if the person names another time zone than their own.
    """
    context = find_automation()
    if context is None:
        return {"error": "there is no conversation: schedules work in Slack and Discord"}
    if not context.can_post and to == "here":
        return {"error": 'nothing can be posted here later: call again with to="direct"'}
    call = f"{tool_context.invocation_id} {tool_context.function_call_id}"
    try:
        zone = time_zone or context.time_zone
        zone = zone or await context.schedules.get_time_zone(create_user_key(context.message.actor_or_author)) or ""
        new = Schedule(
            id=hashlib.sha256(call.encode()).hexdigest()[:10],
            message=_create_message(context, text),
            is_plain=not is_task,
            is_direct=to == "direct",
            starts_at=_find_start(at, in_minutes, repeat),
            time_zone=zone or None,
            rule=repeat or None,
            next_at=None,
            state="active",
            speakers=_list_confirmers(context),
            turn=context.origin,
            created_at=time.time(),
        )
        if new.needs_zone or new.speakers != ():
            new = replace(new, state="proposed")
        stored = await context.schedules.create(new, context.generation)
    except ScheduleError as error:
        return {"error": str(error)}
    context.has_schedules = True
    return await _describe(context, stored)


def _find_start(at: str, in_minutes: float, repeat: str) -> str:
    now = datetime.now(UTC).replace(microsecond=0)
    if at:
        return parse_time(at).isoformat()
    if in_minutes > 0:
        try:
            return (now + timedelta(minutes=in_minutes)).isoformat()
        except OverflowError:
            raise ScheduleError("in_minutes is more than five years: choose less") from None
    if repeat:
        return now.replace(second=0).isoformat()
    raise ScheduleError("there is no time: give at, in_minutes or repeat")


def _create_message(context: AutomationContext, text: str) -> Any:
    if not text.strip():
        raise ScheduleError("the text is empty: give the task or the text")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ScheduleError(f"the text is longer than {MAX_TEXT_CHARACTERS} characters: shorten it")
    return replace(context.message, text=text.strip(), attachments=(), references=(), is_addressed=True, trigger=None)


def _list_confirmers(context: AutomationContext) -> tuple[str, ...] | None:
    """Return who may confirm a new schedule: see `Schedule.speakers`; empty if nobody needs to."""
    message = context.message
    if message.author.startswith(BOT_PREFIX):
        return None
    speakers = {speaker.id for speaker in context.speakers}
    if message.trigger is None and speakers == {message.author}:
        return ()
    return tuple(sorted({message.author, *speakers} - {""}))


async def _describe(context: AutomationContext, stored: Schedule) -> dict[str, Any]:
    zone = find_time_zone(stored.time_zone or "") or ZoneInfo("UTC")
    times = await context.schedules.list_times(stored, _SHOWN_TIMES)
    result: dict[str, Any] = {"id": stored.id, "next": [_format_time(at, zone) for at in times], "time_zone": str(zone)}
    if stored.needs_zone:
        note = "not active yet: your answer shows a menu in which the person chooses their time zone"
        return {"id": stored.id, "at": stored.starts_at, "status": note}
    if stored.state == "proposed":
        return {**result, "status": "not active yet: your answer shows a button with which a person must confirm it"}
    return {**result, "status": "scheduled", "now": _format_time(time.time(), zone)}


def _format_time(at: float, zone: ZoneInfo) -> str:
    return f"{to_local(at, zone):%A %Y-%m-%dT%H:%M}"
