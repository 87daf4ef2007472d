"""Schedules in a reply: a line for each that the turn made, and its buttons."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from channels.base import Button
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_time
from channels.replies.buttons import create_button
from channels.replies.tool_status import shorten_plain
from core.turns.automation.recurrence import parse_time
from core.turns.automation.schedules import MAX_TITLE_CHARACTERS, Schedule, ScheduleStore

#: The most next times in a line, and the most schedules of a reply that have buttons.
SHOWN_TIMES, MAX_WITH_BUTTONS = 3, 4

#: The most characters of a title in a button.
_MAX_LABEL_TITLE = 30

#: The time zones of the menu, from west to east, and the cities that name them. Discord: a menu has 25 options.
TIME_ZONES = {
    "Pacific/Honolulu": "Honolulu",
    "America/Anchorage": "Anchorage",
    "America/Los_Angeles": "Los Angeles, Vancouver",
    "America/Denver": "Denver, Calgary",
    "America/Chicago": "Chicago, Winnipeg",
    "America/Mexico_City": "Mexico City",
    "America/New_York": "New York, Toronto",
    "America/Bogota": "Bogotá, Lima",
    "America/Halifax": "Halifax",
    "America/Sao_Paulo": "São Paulo, Buenos Aires",
    "UTC": "UTC",
    "Europe/London": "London, Dublin, Lisbon",
    "Europe/Berlin": "Berlin, Paris, Madrid, Rome",
    "Europe/Athens": "Athens, Helsinki, Kyiv",
    "Africa/Johannesburg": "Johannesburg, Harare",
    "Europe/Istanbul": "Istanbul, Nairobi, Riyadh",
    "Asia/Dubai": "Dubai, Baku",
    "Asia/Karachi": "Karachi, Tashkent",
    "Asia/Kolkata": "Delhi, Mumbai, Colombo",
    "Asia/Dhaka": "Dhaka",
    "Asia/Bangkok": "Bangkok, Jakarta, Hanoi",
    "Asia/Shanghai": "Beijing, Singapore, Manila",
    "Asia/Tokyo": "Tokyo, Seoul",
    "Australia/Sydney": "Sydney, Melbourne",
    "Pacific/Auckland": "Auckland",
}


async def render_schedule(schedule: Schedule, store: ScheduleStore, say: MessageCatalog) -> str:
    """Return a line with the title and the next times of a schedule."""
    if schedule.needs_zone:
        start = parse_time(schedule.starts_at)
        shown = [format_time(start.timestamp()) if start.tzinfo else f"{start:%Y-%m-%d %H:%M}"]
        has_more = schedule.rule is not None
    else:
        times = await store.list_times(schedule, SHOWN_TIMES + 1)
        shown = [format_time(at) for at in times[:SHOWN_TIMES]]
        has_more = len(times) > SHOWN_TIMES
    sentence = words.SCHEDULED_DIRECT if schedule.is_direct else words.SCHEDULED
    title = shorten_plain(schedule.title, MAX_TITLE_CHARACTERS)
    return say(sentence, title=title, times=", ".join([*shown, *(["…"] if has_more else [])]))


async def add_schedules(text: str, found: Sequence[Schedule], store: ScheduleStore, say: MessageCatalog) -> str:
    """Return an answer with a line below it for each schedule."""
    lines = list[str]()
    for schedule in found:
        lines.append(await render_schedule(schedule, store, say))
        if schedule.state == "proposed":
            lines[-1] += f" {say(words.NEEDS_TIME_ZONE if schedule.needs_zone else words.NEEDS_CONFIRMATION)}"
    return "\n\n".join(filter(None, [text.rstrip(), "\n".join(lines)]))


def schedule_buttons(found: Sequence[Schedule], say: MessageCatalog) -> list[Button]:
    """Return the buttons of the schedules of a reply, of at most `MAX_WITH_BUTTONS`."""
    shown = found[:MAX_WITH_BUTTONS]
    buttons = list[Button]()
    for schedule in shown:
        undo = create_button("unschedule", schedule.id, say)
        confirm = create_button("schedule_confirm", schedule.id, say)
        if schedule.state == "proposed" and schedule.needs_zone:
            if not any(button.options for button in buttons):  # a choice counts for the others that wait only for it
                buttons.append(create_time_zone_menu(schedule.id, say))
        elif schedule.state == "proposed":
            buttons.append(_name(confirm, schedule) if len(shown) > 1 else confirm)
        buttons.append(_name(undo, schedule) if len(shown) > 1 else undo)
    return buttons


def create_time_zone_menu(schedule_id: str, say: MessageCatalog) -> Button:
    """Return the menu in which a person chooses their time zone, for a schedule that waits for it."""
    options = tuple(
        Button(f"schedule_zone:{zone}:{schedule_id}", f"{_format_offset(zone)} {cities}")
        for zone, cities in TIME_ZONES.items()
    )
    return Button(f"zones:{schedule_id}", say(words.CHOOSE_TIME_ZONE), options=options)


def _name(button: Button, schedule: Schedule) -> Button:
    return Button(button.id, f"{button.label}: {shorten_plain(schedule.title, _MAX_LABEL_TITLE)}", button.style)


def _format_offset(zone: str) -> str:
    """Return the present time in a zone, by which people recognize theirs."""
    return f"{datetime.now(ZoneInfo(zone)):%H:%M}"
