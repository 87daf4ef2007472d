"""Evidence of a scenario: visible messages, tool calls and database rows."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from google.adk.events.event import Event

from core.identity import DEFAULT_AGENT_NAME
from core.inbox_message import InboxMessage
from core.models.tokens import TokenCounter
from core.sessions.history import is_user_message
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.schema import inbox, interactions, messages, sessions, turns
from tests.chaos.recorded_tools import RECORD


@dataclass(frozen=True)
class Evidence:
    """Evidence of one scenario.

    Attributes:
        shown: the texts of the bot's messages in their visible order, by platform.
        uses: each tool call, as (session, tool).
        accepted: each inbox row, as (session, text, turn).
        stored: each stored message, as (session, role, text).
        unended: active turns and messages without a turn.
        breaches: violations of the models' rules in requests and stored histories.
        endings: how the processes ended that were not to be killed, but for a good end.
    """

    shown: Mapping[str, Sequence[str]]
    tool_calls: Sequence[tuple[str, str]] = ()
    accepted: Sequence[tuple[str, str, str]] = ()
    stored: Sequence[tuple[str, str, str]] = ()
    unfinished: Sequence[str] = ()
    violations: Sequence[str] = ()
    exit_codes: Sequence[str] = ()


def list_tool_calls(folder: Path) -> list[tuple[str, str]]:
    record = folder / RECORD
    lines = record.read_text().splitlines() if record.exists() else []
    return [(session, tool) for session, tool, _call in map(json.loads, lines)]


async def list_accepted(database: Database) -> list[tuple[str, str, str]]:
    """Return the inbox rows of messages to the bot."""
    said = inbox.c.message.is_not(None), inbox.c.parent.is_(None)  # without unaddressed messages and reruns
    query = sa.select(inbox.c.session, inbox.c.message, inbox.c.turn).where(*said).order_by(inbox.c.id)
    async with database.read() as connection:
        rows = (await connection.execute(query)).all()
    return [(row.session, InboxMessage.from_json(row.message).text, row.turn or "") for row in rows]


async def list_unfinished(database: Database) -> list[str]:
    """Return the unfinished and forgotten work."""
    under_way = sa.select(turns.c.session, turns.c.state).where(turns.c.state.not_in(["done", "failed", "cancelled"]))
    waiting = sa.select(inbox).where(inbox.c.turn.is_(None), inbox.c.outcome.is_(None))
    undone = sa.select(interactions.c.key)  # its user got an acknowledgement
    async with database.read() as connection:
        left = [f"a turn of {row.session} is {row.state}" for row in await connection.execute(under_way)]
        left += [f"{row.kind} {row.event_key} of {row.session} waits" for row in await connection.execute(waiting)]
        return left + [f"{row.key} is left undone" for row in await connection.execute(undone)]


async def list_stored(database: Database) -> list[tuple[str, str, str]]:
    query = sa.select(messages.c.session, messages.c.role, messages.c.content).order_by(messages.c.id)
    async with database.read() as connection:
        return [(row.session, row.role, row.content) for row in await connection.execute(query)]


async def load_histories(database: Database, folder: Path) -> dict[str, list[Event]]:
    """Return each session's history as the next run loads it."""
    service = SessionService(database, TokenCounter(folder), agent=DEFAULT_AGENT_NAME)
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(sessions))).all()
    found = {}
    for row in rows:
        session = await service.get_session(app_name=row.app, user_id=row.user_id, session_id=row.id)
        assert session is not None
        found[row.id] = session.events
    return found


def find_violations(events: Sequence[Event], agent: str = DEFAULT_AGENT_NAME) -> Iterator[str]:
    """Return the violations of the models' rules in a history."""
    if events and not is_user_message(events[0]):
        yield "it does not begin with a user's message"
    if strangers := {event.author for event in events} - {"user", agent}:
        yield f"{', '.join(strangers)} speak in it"
    calls = [call.id for event in events for call in event.get_function_calls()]
    answers = [answer.id for event in events for answer in event.get_function_responses()]
    if None in calls or len(set(calls)) < len(calls):
        yield f"the ids of its calls are no names: {calls}"
    if Counter(calls) != Counter(answers):
        yield f"its calls {calls} are answered by {answers}"
    asked: set[str | None] = set()
    for event in events:
        if any(answer.id not in asked for answer in event.get_function_responses()):
            yield "an answer comes before its call"
        asked |= {call.id for call in event.get_function_calls()}


async def collect(
    database: Database,
    folder: Path,
    *,
    shown: Mapping[str, Sequence[str]],
    breaches_told: Sequence[str],
    endings: Sequence[str],
) -> Evidence:
    """Collect the evidence after all processes have exited."""
    found = (await load_histories(database, folder)).items()
    breaches_found = [f"{session}: {breach}" for session, events in found for breach in find_violations(events)]
    return Evidence(
        shown=shown,
        tool_calls=list_tool_calls(folder),
        accepted=await list_accepted(database),
        stored=await list_stored(database),
        unfinished=await list_unfinished(database),
        violations=[*breaches_told, *breaches_found],
        exit_codes=endings,
    )
