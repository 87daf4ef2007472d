"""Evidence of a crash scenario: visible messages, tool calls and database rows."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from google.adk.events.event import Event

from core.messages.identity import DEFAULT_AGENT_NAME
from core.messages.inbox_message import InboxMessage
from core.models.tokens import TokenCounter
from core.sessions.codec import USER_ROLES
from core.sessions.history import is_user_message
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.schema import IS_PENDING, inbox, messages, sessions, turns
from tests.chaos.recorded_tools import TOOL_CALLS_FILE


@dataclass(frozen=True)
class Evidence:
    """Evidence of one run of the crash scenario.

    Attributes:
        visible_texts: the texts of the bot's messages in their visible order, by platform.
        tool_calls: each tool call, as (session, tool).
        accepted: each inbox row, as (session, text, turn).
        stored: each message of the session histories, as (session, role, text); `user` for all messages of users.
        unfinished: descriptions of active turns, and of messages without a turn.
        violations: breaches of the model APIs' rules in requests and stored histories.
        faults: unexpected exit codes, and other faults of the run.
    """

    visible_texts: Mapping[str, Sequence[str]]
    tool_calls: Sequence[tuple[str, str]] = ()
    accepted: Sequence[tuple[str, str, str]] = ()
    stored: Sequence[tuple[str, str, str]] = ()
    unfinished: Sequence[str] = ()
    violations: Sequence[str] = ()
    faults: Sequence[str] = ()


def list_tool_calls(folder: Path) -> list[tuple[str, str]]:
    """Return (session, tool) of each call that the tools wrote into the folder's file."""
    file = folder / TOOL_CALLS_FILE
    lines = file.read_text().splitlines() if file.exists() else []
    return [(session, tool) for session, tool, _call in map(json.loads, lines)]


async def list_accepted(database: Database) -> list[tuple[str, str, str]]:
    """Return (session, text, turn) of each inbox row of a message to the bot.

    Oldest first. The turn is "" if the message has none. Unaddressed messages and reruns are left out.
    """
    conditions = inbox.c.message.is_not(None), inbox.c.parent.is_(None)
    query = sa.select(inbox.c.session, inbox.c.message, inbox.c.turn).where(*conditions).order_by(inbox.c.id)
    async with database.read() as connection:
        rows = (await connection.execute(query)).all()
    return [(row.session, InboxMessage.from_json(row.message).text, row.turn or "") for row in rows]


async def list_unfinished(database: Database) -> list[str]:
    """Return descriptions of active turns, waiting messages and pending entries.

    The list is empty if all work in the database is done.
    """
    active = sa.select(turns.c.session, turns.c.state).where(turns.c.state.not_in(["done", "failed", "cancelled"]))
    waiting = sa.select(inbox).where(inbox.c.turn.is_(None), inbox.c.outcome.is_(None))
    pending = sa.select(inbox.c.event_key).where(IS_PENDING)  # the platform will not send them again
    async with database.read() as connection:
        found = [f"a turn of {row.session} is {row.state}" for row in await connection.execute(active)]
        found += [f"{row.kind} {row.event_key} of {row.session} waits" for row in await connection.execute(waiting)]
        return found + [f"{row.event_key} is not handled" for row in await connection.execute(pending)]


async def list_stored(database: Database) -> list[tuple[str, str, str]]:
    """Return (session, role, text) of each message of the histories, oldest first."""
    query = sa.select(messages.c.session, messages.c.role, messages.c.content).order_by(messages.c.id)
    async with database.read() as connection:
        rows = await connection.execute(query)
        return [(row.session, "user" if row.role in USER_ROLES else row.role, row.content) for row in rows]


async def load_histories(database: Database, folder: Path) -> dict[str, list[Event]]:
    """Return the ADK events of each session, as the next run loads them, by id."""
    service = SessionService(database, TokenCounter(folder), agent=DEFAULT_AGENT_NAME)
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(sessions))).all()
    histories = {}
    for row in rows:
        session = await service.get_session(app_name=row.app, user_id=row.user_id, session_id=row.id)
        assert session is not None
        histories[row.id] = session.events
    return histories


def find_violations(events: Sequence[Event], agent: str = DEFAULT_AGENT_NAME) -> Iterator[str]:
    """Yield the breaches of the model APIs' rules in a session's history.

    For example, each tool call needs one result after it.

    Args:
        agent: the only agent that may have events.
    """
    if events and not is_user_message(events[0]):
        yield "it does not begin with a user's message"
    if unknown_authors := {event.author for event in events} - {"user", agent}:
        yield f"it has events of unknown authors: {', '.join(unknown_authors)}"
    calls = [call.id for event in events for call in event.get_function_calls()]
    answers = [answer.id for event in events for answer in event.get_function_responses()]
    if None in calls or len(set(calls)) < len(calls):
        yield f"its calls have missing or repeated ids: {calls}"
    if Counter(calls) != Counter(answers):
        yield f"its calls {calls} have the results {answers}"
    called: set[str | None] = set()
    for event in events:
        if any(answer.id not in called for answer in event.get_function_responses()):
            yield "a result comes before its call"
        called |= {call.id for call in event.get_function_calls()}


async def collect(
    database: Database,
    folder: Path,
    *,
    visible_texts: Mapping[str, Sequence[str]],
    request_violations: Sequence[str],
    faults: Sequence[str],
) -> Evidence:
    """Collect the evidence of a run after all its processes have exited.

    Args:
        folder: the folder of the processes.
        request_violations: violations that the scripted model found.
    """
    histories = (await load_histories(database, folder)).items()
    history_violations = [
        f"{session}: {violation}" for session, events in histories for violation in find_violations(events)
    ]
    return Evidence(
        visible_texts=visible_texts,
        tool_calls=list_tool_calls(folder),
        accepted=await list_accepted(database),
        stored=await list_stored(database),
        unfinished=await list_unfinished(database),
        violations=[*request_violations, *history_violations],
        faults=faults,
    )
