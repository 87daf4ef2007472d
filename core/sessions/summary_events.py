"""Summaries: what is sent to the model of a long conversation in the place of its oldest turns.

One is stored as ADK's own compaction, in a row of `messages` that knows up to which message it tells (`covers`). ADK
would show it as the agent's own words, between messages in the order of their clocks, and hide what lies between two
moments: but what is tried again keeps its moments, and comes last all the same. So here it is placed by what it covers,
and shown as what it is.
"""

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.genai import types

from core.conversations.quoting import MARK, frame, plain
from core.sessions.codec import parsed

_TITLE = "A summary of what was said here before, which a model has made"


def summary(text: str, *, begin: float, end: float) -> Event:
    """A summary as it is stored.

    Args:
        begin: when what it tells of began, in seconds since the epoch.
        end: when that ended.
    """
    content = types.Content(role="model", parts=[types.Part(text=text)])
    compaction = EventCompaction(start_timestamp=begin, end_timestamp=end, compacted_content=content)
    return Event(author="user", invocation_id=Event.new_id(), actions=EventActions(compaction=compaction))


def shown(event: Event | None) -> list[Event]:
    """A stored summary as the model reads it, before all else; nothing of what is none."""
    compaction = event and event.actions.compaction
    if not event or not compaction:
        return []
    words = "\n".join(part.text for part in compaction.compacted_content.parts or () if part.text)
    framed = frame(_TITLE, [f"{MARK}{line}".rstrip() for line in plain(words).splitlines()])
    return [
        Event(
            id=event.id,
            invocation_id=event.invocation_id,
            author="user",
            timestamp=compaction.end_timestamp,
            content=types.UserContent(framed),
        )
    ]


def begun_at(stored: str | None) -> float | None:
    """When what a stored summary tells of began, if it can be read."""
    event = parsed(stored, 0)
    return event.actions.compaction.start_timestamp if event and event.actions.compaction else None
