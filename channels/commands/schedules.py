"""Schedules in commands: the list of a person's schedules and background jobs, and presses of their buttons."""

from channels.base import Button
from channels.commands.listed_items import ListedItem, shorten_title
from channels.commands.services import PlatformServices
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_time
from channels.replies.buttons import Press, create_button
from channels.turns.schedules import TIME_ZONES, render_schedule
from core.messages.identity import Actor
from core.messages.inbox_message import InboxMessage
from core.turns.automation.jobs import JobStore
from core.turns.automation.schedules import ScheduleDenial, ScheduleStore

#: The most characters of a job's call in the list.
_MAX_CALL_CHARACTERS = 80

_DENIALS = {
    ScheduleDenial.GONE: words.ALREADY_ENDED,
    ScheduleDenial.NOT_OWNER: words.SCHEDULE_NOT_YOURS,
    ScheduleDenial.NEEDS_ZONE: words.NEEDS_TIME_ZONE,
    ScheduleDenial.PAST: words.SCHEDULE_PAST,
    ScheduleDenial.TOO_MANY: words.TOO_MANY_SCHEDULES,
}


async def list_schedules(store: ScheduleStore, message: InboxMessage, say: MessageCatalog) -> list[ListedItem]:
    """Return the schedules of a message's author, for the place of the message."""
    items = list[ListedItem]()
    for schedule in await store.list_of_person(message.platform, message.author):
        line = await render_schedule(schedule, store, say)
        if schedule.message.place != message.place and not schedule.is_direct:
            line = say(words.SCHEDULE_ELSEWHERE, line=line)
        states = {"paused": words.SCHEDULE_PAUSED, "proposed": words.NEEDS_CONFIRMATION}
        line = " ".join(filter(None, [line, say(states[schedule.state]) if schedule.state in states else ""]))
        buttons = [Button(f"unschedule:{schedule.id}", say(words.DELETE))]
        if schedule.state == "active":
            buttons.insert(0, create_button("schedule_pause", schedule.id, say))
        elif schedule.state == "paused":
            buttons.insert(0, create_button("schedule_resume", schedule.id, say))
        items.append(ListedItem(shorten_title(schedule.title), line, buttons))
    return items


async def list_jobs(store: JobStore, message: InboxMessage, say: MessageCatalog) -> list[ListedItem]:
    """Return the running background jobs of a message's author, for the place of the message."""
    items = list[ListedItem]()
    for job in await store.list_of_person(message.platform, message.author):
        call = job.call.replace("`", "'")
        shown = call if len(call) <= _MAX_CALL_CHARACTERS else f"{call[:_MAX_CALL_CHARACTERS]}…"
        line = say(words.JOB_RUNNING, call=shown, time=format_time(job.created_at))
        if job.place != message.place:
            line = say(words.SCHEDULE_ELSEWHERE, line=line)
        title = shorten_title(job.call)
        items.append(ListedItem(title, line, [create_button("cancel_job", job.id, say)]))
    return items


async def handle_schedule_press(
    services: PlatformServices, press: Press, actor: Actor, name: str, say: MessageCatalog
) -> str:
    """Perform the action of a button of a schedule or a job, and return the text for the user.

    A reply that shows a schedule is updated.
    """
    store = services.schedules
    id_ = press.target_id
    match press.action:
        case "cancel_job":
            was_running = await services.jobs.cancel(id_, author=actor.author)
            return say(words.JOB_CANCELLED if was_running else words.ALREADY_ENDED)
        case "unschedule":
            changed = await store.delete(id_, actor.author)
            done = words.SCHEDULE_DELETED
        case "schedule_pause":
            changed = await store.pause(id_, actor.author)
            done = words.SCHEDULE_NOW_PAUSED
        case "schedule_resume":
            changed = await store.resume(id_, actor.author)
            done = ""
        case "schedule_confirm":
            changed = await store.confirm(id_, actor, name)
            done = ""
        case _:
            return await _choose_time_zone(services, press, actor, name, say)
    if isinstance(changed, ScheduleDenial):
        return say(_DENIALS[changed])
    services.rerenderer.rerender(changed.turn)
    return say(done, title=shorten_title(changed.title)) if done else await render_schedule(changed, store, say)


async def _choose_time_zone(
    services: PlatformServices, press: Press, actor: Actor, name: str, say: MessageCatalog
) -> str:
    if press.detail not in TIME_ZONES:
        return say(words.UNKNOWN_BUTTON)
    activated = await services.schedules.choose_time_zone(press.detail, actor, name, press.target_id)
    for turn in {schedule.turn for schedule in activated}:
        services.rerenderer.rerender(turn)
    lines = [await render_schedule(schedule, services.schedules, say) for schedule in activated]
    return "\n".join([say(words.TIME_ZONE_CHOSEN, zone=press.detail), *lines])
