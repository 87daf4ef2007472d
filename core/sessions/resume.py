"""Interrupted and repeated runs: moves, completes or deletes their stored events.

A run is an ADK invocation; the ADK events of a run have its id in `messages.invocation_id`. The call log is the table
`tool_calls`, which has the result of each tool call of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from sqlalchemy.ext.asyncio import AsyncConnection

from core.models.tokens import estimate_tokens
from core.observability.secret_redaction import RunSecrets
from core.sessions.artifacts import FROM_EVENT_KEY
from core.sessions.codec import USER_ROLES, mask_row, measure_event, parse_event, to_row
from core.sessions.history import INTERRUPTED_ERROR, answer_calls
from core.sessions.lifecycle import delete_unreferenced_blobs
from core.store.schema import artifacts, human_requests, jobs, memories, messages, sessions, tool_calls

#: ADK: names of the calls that request a confirmation or credentials of a person.
_REQUEST_CALLS = ("adk_request_confirmation", "adk_request_credential")

#: ADK: name of the call by which a workflow or a model requests input of the user.
INPUT_CALL = "adk_request_input"

NOT_STARTED_ERROR = "interrupted before it began"
NOT_ANSWERED_ERROR = "nobody answered this"


def correction_run_id(run_id: str) -> str:
    """Return the run id of the events after a run's correction.

    If the model names an unknown agent, the agent runs again with a corrected request.
    """
    return f"{run_id}.2"


def list_run_ids(run_id: str) -> tuple[str, str]:
    """Return the ids of the events before and after a run's correction, from either of them."""
    original = run_id.removesuffix(correction_run_id(""))
    return original, correction_run_id(original)


def is_prompt_stored(session: str, generation: int, run: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that the user message of a run is in `messages`."""
    return sa.exists().where(
        messages.c.session == session,
        messages.c.generation == generation,
        messages.c.invocation_id == run,
        messages.c.role == "user",
    )


async def resume_run(connection: AsyncConnection, session_id: str, invocation_id: str) -> None:
    """Move a run's stored events to the end of the history, so that ADK can continue.

    The user's message, tool calls, tool responses and agent states are moved. The text of an agent that had not ended
    is deleted, since the model generates it again. The last message of a run that had ended is deleted too.

    ADK makes the calls of a step without responses when the run continues; the call log has the results of the calls
    that were made before. If a step has only some responses, these are deleted, since ADK would not make the other
    calls. In a step with an open long-running call, the other open calls get their logged result, or an error, as their
    response. Artifacts of deleted events are deleted, too. A run without a stored user message keeps its events, and
    loses only the artifacts of those that would otherwise be deleted.
    """
    runs = (invocation_id, correction_run_id(invocation_id))
    query = sa.select(messages).where(messages.c.session == session_id, messages.c.invocation_id.in_(runs))
    stored = [_RunMessage.from_row(row) for row in await connection.execute(query.order_by(messages.c.id))]
    kept = _select_rows(stored)
    await _delete_files(connection, session_id, runs, kept)
    if not any(row.role == "user" for row in kept):
        return
    call_log = _RunCallLog(connection, session_id, runs)
    kept = await _drop_partial_steps(kept, call_log)
    restarts = not _find_agent_states(stored) and any(row.is_end for row in stored)
    kept = await _add_outcomes(kept, call_log, restarts=restarts, secrets=_list_secrets(stored))
    await connection.execute(sa.delete(messages).where(messages.c.id.in_([row.id for row in stored])))
    await connection.execute(sa.insert(messages), [row.columns for row in kept])


async def _delete_files(
    connection: AsyncConnection, session_id: str, runs: Sequence[str], kept: Sequence[_RunMessage]
) -> None:
    """Delete files in agents' messages of a run that are not kept; artifacts that tools saved stay."""
    names = {name for row in kept for name in row.event.actions.artifact_delta}
    query = sa.select(artifacts.c.id, artifacts.c.name, artifacts.c.custom_metadata)
    rows = await connection.execute(query.where(artifacts.c.session == session_id, artifacts.c.run.in_(runs)))
    ids = [row.id for row in rows if row.name not in names and (row.custom_metadata or {}).get(FROM_EVENT_KEY)]
    if ids:
        await connection.execute(sa.delete(artifacts).where(artifacts.c.id.in_(ids)))


async def discard_run(connection: AsyncConnection, session_id: str, invocation_id: str, *, keep_prompt: bool) -> None:
    """Delete a run's events, tool calls, artifacts, requests to people and memories.

    The run can then start again. Changes of ADK's state stay: the tools that made them have other effects that stay as
    well. So do background jobs; if the run makes the same calls again, these are other jobs. With `keep_prompt`, the
    user's message becomes the newest message of the history.
    """
    runs = (invocation_id, correction_run_id(invocation_id))
    of_run = (messages.c.session == session_id) & messages.c.invocation_id.in_(runs)
    query = sa.select(messages).where(of_run).order_by(messages.c.id)
    stored = [_RunMessage.from_row(row) for row in await connection.execute(query)]
    prompts = (row for row in stored if row.role == "user" and row.columns["invocation_id"] == invocation_id)
    prompt = next(prompts, None) if keep_prompt else None
    await connection.execute(sa.delete(messages).where(of_run))
    for table in (tool_calls, artifacts, human_requests):
        await connection.execute(sa.delete(table).where(table.c.session == session_id, table.c.run.in_(runs)))
    its_jobs = (jobs.c.session == session_id) & jobs.c.run.in_(runs)
    await connection.execute(sa.update(jobs).where(its_jobs).values(run=None))
    event_ids = [row.columns["event_id"] for row in stored if row is not prompt]
    await connection.execute(sa.delete(memories).where(memories.c.session == session_id, memories.c.key.in_(event_ids)))
    if prompt is not None:
        await connection.execute(sa.insert(messages).values(prompt.columns))
    await delete_unreferenced_blobs(connection, session_id)


async def close_questions(connection: AsyncConnection, session_id: str, author: str | None) -> bool:
    """Delete the open questions of a session, and answer their calls; return whether there were any.

    Each call gets the error `NOT_ANSWERED_ERROR`, so that no run waits for an answer any more. With an `author`, only
    questions to which this person's messages led are deleted.
    """
    c = human_requests.c
    is_open = (c.session == session_id) & (c.kind == "question") & c.decision.is_(None)
    rows = (await connection.execute(sa.select(c.id, c.run, c.call_id, c.authors).where(is_open))).all()
    closed = [row for row in rows if author is None or author in row.authors]
    await connection.execute(sa.delete(human_requests).where(c.id.in_([row.id for row in closed])))
    await close_calls(connection, session_id, {(row.run, row.call_id) for row in closed})
    return bool(closed)


async def close_calls(connection: AsyncConnection, session_id: str, calls: Set[tuple[str, str]]) -> None:
    """Store the error `NOT_ANSWERED_ERROR` as the response to open long-running calls.

    `calls` are run ids and call ids. Answered calls are ignored, and so are those of former generations of the session.
    """
    generation = sa.select(sessions.c.generation).where(sessions.c.id == session_id).scalar_subquery()
    has_long_running_calls = messages.c.long_running_calls.is_not(None) & messages.c.summarized_id.is_(None)
    query = sa.select(messages).where(
        messages.c.session == session_id,
        messages.c.generation == generation,
        messages.c.invocation_id.in_({run for run, _ in calls}),
        has_long_running_calls,
    )
    for row in [_RunMessage.from_row(row) for row in await connection.execute(query.order_by(messages.c.id))]:
        calls_answered = row.columns["long_running_calls"]
        ids = {
            id_ for id_ in row.call_ids if (row.columns["invocation_id"], id_) in calls and not calls_answered.get(id_)
        }
        if not ids:
            continue
        response = _RunMessage.create(answer_calls(row.event, {id_: {"error": NOT_ANSWERED_ERROR} for id_ in ids}), row)
        await connection.execute(sa.insert(messages).values(response.columns))
        answered = {id_: done or id_ in ids for id_, done in calls_answered.items()}
        update = sa.update(messages).where(messages.c.id == row.id)
        await connection.execute(update.values(long_running_calls=answered))


@dataclass(frozen=True, slots=True)
class _RunMessage:
    """Row of `messages` that belongs to a run; the event of a row without one has no content."""

    id: int
    columns: dict[str, Any]
    event: Event

    @classmethod
    def from_row(cls, row: sa.Row[Any]) -> _RunMessage:
        values = dict(row._mapping)
        id_ = values.pop("id")
        event = parse_event(row.event, id_) or Event(author=row.author, invocation_id=row.invocation_id)
        return cls(id_, values, event)

    @classmethod
    def create(cls, event: Event, neighbor: _RunMessage, secrets: RunSecrets | None = None) -> _RunMessage:
        """Return a row for a new event in its neighbor's session; it has the neighbor's `id`, which is not inserted."""
        words, tokens = measure_event(event)
        new = mask_row(to_row(event, tokens=tokens + estimate_tokens(words)), secrets or RunSecrets())
        return cls(neighbor.id, {**neighbor.columns, **new}, event)

    @property
    def role(self) -> str:
        return str(self.columns["role"])

    @property
    def agent_key(self) -> tuple[str, str | None]:
        return self.event.author, self.event.branch

    @property
    def call_ids(self) -> set[str]:
        return {call.id for call in self.event.get_function_calls() if call.id}

    @property
    def answered_ids(self) -> set[str]:
        return {answer.id for answer in self.event.get_function_responses() if answer.id}

    @property
    def long_running_ids(self) -> set[str]:
        return self.event.long_running_tool_ids or set()

    @property
    def requested_ids(self) -> set[str]:
        """The ids of the calls for which the event requests a confirmation or credentials."""
        arguments = [call.args or {} for call in self.event.get_function_calls() if call.name in _REQUEST_CALLS]
        originals = (
            (given.get("originalFunctionCall") or {}).get("id") or given.get("functionCallId") for given in arguments
        )
        return {str(id_) for id_ in originals if id_}

    @property
    def is_text(self) -> bool:
        return self.role == "assistant" and not self.columns["tool_calls"]

    @property
    def is_end(self) -> bool:
        return bool(self.event.actions.end_of_agent)


def _find_agent_states(rows: Sequence[_RunMessage]) -> list[_RunMessage]:
    """Return the rows with an agent's state, by which ADK continues a run with the active sub-agent."""
    return [row for row in rows if row.event.actions.agent_state is not None]


def _select_rows(rows: Sequence[_RunMessage]) -> list[_RunMessage]:
    """Return the rows of an interrupted run that stay when the run is resumed.

    These are user messages, tool calls and tool responses. If the run has stored agent states, these states stay too,
    and so do the texts and ends of agents that have ended. But the last rows are left out as long as they are texts or
    ends in the ADK branch of the newest state. By this state, ADK runs the agent of these rows again.
    """
    notes = _find_agent_states(rows)
    if not notes:
        return [
            row
            for row in rows
            if row.role in (*USER_ROLES, "tool") or row.call_ids or row.columns["long_running_calls"] is not None
        ]
    kept = []
    for i, row in enumerate(rows):
        has_ended = any(later.is_end and later.agent_key == row.agent_key for later in rows[i + 1 :])
        is_error = row.role == "event" and row.event.error_code is not None
        if not is_error and (not row.is_text or has_ended):
            kept.append(row)
    # ADK: a sequential agent stores which sub-agent is active, and runs that one again even if it has ended
    while (kept[-1].is_text or kept[-1].is_end) and kept[-1].event.branch == notes[-1].event.branch:
        kept.pop()
    return kept


@dataclass(frozen=True, slots=True)
class _RunCallLog:
    """Reads and updates of a run's rows, and those of its correction, in the table `tool_calls`."""

    connection: AsyncConnection
    session: str
    runs: Sequence[str]

    async def find_calls(self, ids: Set[str]) -> dict[str, sa.Row[Any]]:
        query = sa.select(tool_calls).where(self._is_in_run, tool_calls.c.id.in_(ids))
        return {row.id: row for row in await self.connection.execute(query)}

    async def drop_state_deltas(self, ids: Set[str]) -> None:
        """Delete the state changes of calls from `tool_calls.actions`; ADK's stored state has them already."""
        for id_, row in (await self.find_calls(ids)).items():
            actions = {name: done for name, done in (row.actions or {}).items() if name != "state_delta"}
            update = sa.update(tool_calls).where(self._is_in_run, tool_calls.c.id == id_)
            await self.connection.execute(update.values(actions=actions or None))

    @property
    def _is_in_run(self) -> sa.ColumnElement[bool]:
        return (tool_calls.c.session == self.session) & tool_calls.c.run.in_(self.runs)


async def _drop_partial_steps(rows: Sequence[_RunMessage], call_log: _RunCallLog) -> list[_RunMessage]:
    """Return the rows of a run without incomplete steps.

    The result lacks tool responses to only some calls of a step, and requests to a person whose tool call has no
    response. It also lacks tool responses that need a confirmation that no row of the run requests.
    """
    requested = {id_ for row in rows for id_ in row.requested_ids}
    answered = {id_ for row in rows for id_ in row.answered_ids}
    open_ = {id_ for row in rows for id_ in row.call_ids - answered - row.long_running_ids}
    halves = [row for row in rows if row.call_ids & open_]
    partial_ids = {id_ for row in halves for id_ in row.call_ids}
    dropped = [
        row
        for row in rows
        if row.requested_ids & open_
        or (
            row.event.author != "user"
            and (row.answered_ids & partial_ids or row.event.actions.requested_tool_confirmations.keys() - requested)
        )
    ]
    await call_log.drop_state_deltas({id_ for row in dropped for id_ in row.answered_ids})
    return [row for row in rows if row not in dropped]


def _list_secrets(rows: Sequence[_RunMessage]) -> RunSecrets:
    secrets = RunSecrets()
    for row in rows:
        if (unmasked := row.columns["unmasked"]) is not None:
            secrets.update(unmasked["secrets"])
    return secrets


async def _add_outcomes(
    rows: Sequence[_RunMessage], call_log: _RunCallLog, *, restarts: bool, secrets: RunSecrets
) -> list[_RunMessage]:
    """Return the rows of a run, and responses to calls that ADK would not make again.

    These are the open calls of a step with an open long-running call. If the agents start again (`restarts`), these are
    all open calls, since messages of other agents follow. A long-running call that still waits for its result gets no
    response. A step in which no call was started is left out, so that the model repeats the step.
    """
    answered = {id_ for row in rows for id_ in row.answered_ids}
    completed = []
    for row in rows:
        open_ids = row.call_ids - answered
        if row.requested_ids or not open_ids or not (restarts or open_ids & row.long_running_ids):
            completed.append(row)
            continue
        started = await call_log.find_calls(row.call_ids)
        if started or row.call_ids & answered:
            outcomes = {id_: _get_outcome(started.get(id_)) for id_ in open_ids if not _is_pending(id_, row, started)}
            completed.append(row)
            if outcomes:
                completed.append(_RunMessage.create(answer_calls(row.event, outcomes), row, secrets))
    return completed


def _is_pending(id_: str, row: _RunMessage, started: Mapping[str, sa.Row[Any]]) -> bool:
    return (
        id_ in row.long_running_ids and id_ in started and started[id_].state == "ended" and started[id_].result is None
    )


def _get_outcome(call: sa.Row[Any] | None) -> dict[str, Any]:
    """Return the tool response to a call of an interrupted run: its result, or an error."""
    if call is None:
        return {"error": NOT_STARTED_ERROR}
    if call.state == "begun":
        return {"error": INTERRUPTED_ERROR}
    return call.result if isinstance(call.result, dict) else {"result": call.result}
