"""SQL statements of deletions, which run in the caller's transaction."""

import json
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.identity import ANONYMOUS_USER, to_user_state
from core.messages.inbox_message import InboxOutcome
from core.sessions import state as scopes
from core.sessions.lifecycle import (
    delete_prompts,
    delete_session_data,
    delete_unreferenced_blobs,
    find_session_row,
    new_session_row,
)
from core.sessions.resume import correction_run_id, list_run_ids
from core.store.schema import (
    IS_RUNNING_JOB,
    artifacts,
    denial_notices,
    feedback,
    human_requests,
    inbox,
    jobs,
    memories,
    messages,
    schedules,
    sessions,
    sign_ins,
    spending,
    state,
    time_zones,
    tool_calls,
    turns,
    vault,
)
from core.store.upsert import insert_or_ignore
from core.turns.queries import is_active, is_waiting
from core.usage.prices import Prices
from core.usage.spending_ledger import has_person_id, record_turns, redact_rows

#: The outcome of an inbox message of which only the event key is left.
FORGOTTEN_OUTCOME = "forgotten"

#: The beginning of the event key of a row that marks a session as deleted.
TOMBSTONE_PREFIX = "forgotten:"


async def lock_or_create_session(connection: AsyncConnection, session_id: str) -> sa.Row[Any] | None:
    """Lock a session that is to be deleted, and return its `sessions` row.

    If the session does not exist, an empty row is inserted and locked, so that no other transaction creates the
    session; the caller has to delete the row. The result is then None.
    """
    while (row := await find_session_row(connection, session_id, for_update=True)) is None:
        await insert_or_ignore(connection, sessions, new_session_row(session_id, "", ""))
    return row if row.user_id else None


async def has_active_turn(connection: AsyncConnection, session_id: str) -> bool:
    query = sa.select(turns.c.id).where(turns.c.session == session_id, is_active(turns))
    return (await connection.execute(query)).first() is not None


async def has_later_turns(connection: AsyncConnection, session_id: str) -> bool:
    """Return whether a session has a schedule or a running background job."""
    scheduled = sa.select(schedules.c.id).where(schedules.c.session == session_id)
    running = sa.select(jobs.c.id).where(jobs.c.session == session_id, IS_RUNNING_JOB)
    return (await connection.execute(sa.union_all(scheduled, running))).first() is not None


async def has_queued_messages(connection: AsyncConnection, session_id: str) -> bool:
    query = sa.select(inbox.c.id).where(inbox.c.session == session_id, is_waiting(inbox))
    return (await connection.execute(query)).first() is not None


async def delete_session(
    connection: AsyncConnection,
    prices: Prices,
    session_id: str,
    row: sa.Row[Any] | None,
    *,
    reset_at: float,
    before_generation: int | None = None,
) -> None:
    """Delete the rows of a session; the event keys of its inbox messages stay.

    The cost of the turns is first stored in the table `spending`. At the end, a row of `inbox` is inserted that marks
    the session as deleted, even if the session itself stays: see `_insert_tombstone`.

    Args:
        prices: the prices of models, for turns whose cost is not stored yet.
        row: the row of the session; None if the session did not exist, which is then not marked as deleted.
        reset_at: a backfill ignores messages of the session that were sent until then.
        before_generation: delete only turns, jobs and inbox messages of earlier generations. The session itself stays
            if it has inbox messages of this generation or a later one. None deletes all generations.
    """
    its_turns = turns.c.session == session_id
    its_messages = inbox.c.session == session_id
    query = sa.select(inbox.c.id).where(its_messages).limit(1)
    old_messages = its_messages
    its_jobs = jobs.c.session == session_id
    if before_generation is not None:
        its_turns &= turns.c.generation < before_generation
        its_jobs &= jobs.c.generation < before_generation
        old_messages &= inbox.c.generation < before_generation
    unfinished = its_turns & turns.c.finished_at.is_(None)
    await connection.execute(sa.update(turns).where(unfinished).values(finished_at=time.time()))
    await record_turns(connection, prices, its_turns)
    await connection.execute(sa.delete(feedback).where(feedback.c.turn.in_(sa.select(turns.c.id).where(its_turns))))
    await connection.execute(sa.delete(turns).where(its_turns))
    await connection.execute(sa.delete(jobs).where(its_jobs))
    await tombstone_messages(connection, old_messages)
    if (await connection.execute(query)).first() is None:
        await delete_session_data(connection, session_id)
        await connection.execute(sa.delete(artifacts).where(artifacts.c.session == session_id))
        await connection.execute(sa.delete(sessions).where(sessions.c.id == session_id))
    if row is not None:
        await _insert_tombstone(connection, row, reset_at)


async def tombstone_messages(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> None:
    """Replace matching inbox messages by tombstones: rows without session, author and message.

    Id, event key, times, kind and generation stay; the outcome becomes `FORGOTTEN_OUTCOME`; other columns are emptied.
    """
    empty = {
        "session": "",
        "place": "",
        "author": "",
        "message": None,
        "edited_message": None,
        "payload": None,
        "owner": None,
        "parent": None,
        "turn": None,
    }
    await connection.execute(sa.update(inbox).where(condition).values(**empty, outcome=FORGOTTEN_OUTCOME))


async def _insert_tombstone(connection: AsyncConnection, session: sa.Row[Any], reset_at: float) -> None:
    """Insert an `inbox` row that marks a session as deleted.

    A backfill treats the row as a reset. If no session of the place is left, the state, files and memories of the place
    are deleted. The names of people in the place's spending rows are then deleted too.
    """
    now = time.time()
    mark = {
        "session": session.id,
        "place": session.user_id,
        "author": "",
        "generation": 1,
        "outcome": InboxOutcome.RESET,
    }
    mark |= {"event_key": f"{TOMBSTONE_PREFIX}{session.id}:{now}", "sent_at": reset_at, "accepted_at": now}
    await connection.execute(sa.insert(inbox).values(mark))
    others = sa.select(sessions.c.id).where(sessions.c.user_id == session.user_id)
    if (await connection.execute(others.limit(1))).first() is None:
        await connection.execute(sa.delete(memories).where(memories.c.user_id == session.user_id))
        await redact_rows(connection, spending.c.place == session.user_id)
        for table in (state, artifacts):
            is_of_place = (table.c.scope == "user") & scopes.is_owned_by_user(table.c.owner, session.user_id)
            await connection.execute(sa.delete(table).where(is_of_place))


async def delete_old_runs(connection: AsyncConnection, prices: Prices, session_id: str, before: float) -> None:
    """Delete a session's runs that ended before a time, with their rows in all tables.

    These are messages, memories, tool calls, files and turns. If messages are deleted, all summaries and prompts of the
    session are deleted as well, otherwise those from before the time. Runs that wait for people, belong to an active
    turn, or have later messages too stay; only their memories from before the time are deleted.

    The model calls and costs of all ended turns of the session are first stored in `spending`: see `record_turns`.
    Inbox messages that were sent before the time become tombstones, except those that wait for a turn or whose turn
    stays.
    """
    await record_turns(connection, prices, turns.c.session == session_id)
    kept_runs = await _list_runs_to_keep(connection, session_id, before)
    in_session = messages.c.session == session_id
    old = in_session & (messages.c.created_at < before) & messages.c.invocation_id.not_in(kept_runs)
    deleted = await connection.execute(sa.delete(messages).where(old, messages.c.summarized_id.is_(None)))
    summaries = in_session & messages.c.summarized_id.is_not(None)
    with_prompts = turns.c.session == session_id
    if not deleted.rowcount:
        summaries &= messages.c.created_at < before
        with_prompts &= turns.c.created_at < before
    await delete_prompts(connection, with_prompts)
    answered = sa.exists().where(turns.c.session == session_id, turns.c.origin == inbox.c.turn)
    run = sa.func.coalesce(artifacts.c.run, "")
    for table, condition in (
        (messages, summaries),
        (memories, memories.c.created_at < before),
        (jobs, jobs.c.finished_at < before),
        (tool_calls, (tool_calls.c.started_at < before) & tool_calls.c.run.not_in(kept_runs)),
        (artifacts, (artifacts.c.created_at < before) & run.not_in(kept_runs)),
        (turns, (turns.c.finished_at < before) & turns.c.origin.not_in(kept_runs) & turns.c.id.not_in(kept_runs)),
    ):
        await connection.execute(sa.delete(table).where(table.c.session == session_id, condition))
    ended = (inbox.c.session == session_id) & (inbox.c.sent_at < before) & ~is_waiting(inbox) & ~answered
    await tombstone_messages(connection, ended)
    await delete_unreferenced_blobs(connection, session_id)


async def _list_runs_to_keep(connection: AsyncConnection, session_id: str, before: float) -> list[str]:
    """Return the ids of a session's runs that a deletion of old runs must not delete.

    These are runs with messages both before and since `before`, runs that wait for people, and runs of active turns.
    """
    c = messages.c
    conditions = (
        c.created_at < before,
        c.created_at >= before,
        c.long_running_calls.is_not(None) & c.summarized_id.is_(None),
    )
    found = list[set[str]]()
    for condition in conditions:
        query = sa.select(c.invocation_id).where(c.session == session_id, condition).distinct()
        found.append({list_run_ids(run)[0] for run in (await connection.execute(query)).scalars()})
    old, new, waiting = found
    unfinished = sa.select(turns.c.origin, turns.c.run).where(turns.c.session == session_id, is_active(turns))
    running = {run for row in await connection.execute(unfinished) for run in row if run}
    runs = (old & new) | waiting | running
    return [*runs, *map(correction_run_id, runs)]


async def delete_user_records(connection: AsyncConnection, user_id: str) -> None:
    """Delete the data about a user outside of their messages in sessions.

    Ratings, denial notices, schedules, background jobs, the time zone and sign-ins, also those that tools wait for, are
    deleted, and the user's name and id are removed from decisions. Of the user's inbox messages only the event keys and
    times stay, except messages that wait for a turn or belong to an active one.
    """
    await connection.execute(sa.delete(feedback).where(feedback.c.author == user_id))
    decided = sa.update(human_requests).where(human_requests.c.decided_by == user_id)
    await connection.execute(decided.values(decided_by=None, decided_by_name=None))
    may_have_answered = sa.cast(human_requests.c.answer_authors, sa.Text).contains(json.dumps(user_id), autoescape=True)
    rows = sa.select(human_requests.c.id, human_requests.c.answer_authors).where(may_have_answered)
    for id_, authors in (await connection.execute(rows)).all():
        # without the name and the id, a person has no rights, and neither has the run
        anonymous = [to_user_state(ANONYMOUS_USER) if author["id"] == user_id else author for author in authors]
        update = sa.update(human_requests).where(human_requests.c.id == id_)
        await connection.execute(update.values(answer_authors=anonymous))
    for table in (schedules, jobs):
        await connection.execute(sa.delete(table).where(table.c.author == user_id))
    await connection.execute(sa.delete(sign_ins).where(sign_ins.c.person == user_id))
    is_of_user = vault.c.name.contains(f"/{user_id}/", autoescape=True)
    await connection.execute(sa.delete(vault).where(vault.c.name.startswith("sign-in"), is_of_user))
    for table in (denial_notices, time_zones):
        await connection.execute(sa.delete(table).where(has_person_id(table.c.user_key, user_id)))
    in_turn = sa.exists().where(turns.c.origin == inbox.c.turn, is_active(turns))
    # a message that was sent during the deletion is answered
    await tombstone_messages(connection, (inbox.c.author == user_id) & ~is_waiting(inbox) & ~in_turn)
