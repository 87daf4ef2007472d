"""Background jobs: tool calls whose result comes after their turn.

A job is stored once for each call. Its end and the inbox entry with the result are one transaction, so that exactly one
turn answers the result, whoever finishes the job: the worker that runs it, a ticket, or another worker after a crash.
"""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import ToolError
from core.messages.inbox_message import InboxMessage, storable_text
from core.messages.trigger import JobOutcome, Trigger
from core.observability.messages import format_count
from core.observability.secret_redaction import get_run_secrets, redact_vendor_keys
from core.sessions.lifecycle import lock_session_row
from core.sessions.prompt_text import LINE_PREFIX, QUOTE_CLOSE, QUOTE_OPEN, build_quote, escape_brackets
from core.store.database import Database
from core.store.schema import IS_RUNNING_JOB, jobs
from core.store.upsert import build_insert
from core.store.workers.fencing import FencingToken, lock_session_and_turn
from core.store.workers.lease import Lease
from core.turns.queries import append_triggered, list_readable_messages

#: The most characters of a result and of a call's arguments in the prompt of the turn that answers them.
MAX_RESULT_CHARACTERS, MAX_ARGUMENTS_CHARACTERS = 100_000, 200

#: The most jobs of one person that run at the same time.
MAX_RUNNING_JOBS = 20

#: Beginning of the keys of tickets, by which `core.observability.secret_redaction` knows them.
KEY_PREFIX = "plt_"


class JobState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class FinishResult(Enum):
    """Result of an attempt to finish a job.

    Attributes:
        FINISHED: the result is stored, now or by an earlier attempt.
        CANCELLED: a person cancelled the job, or reset its session.
    """

    FINISHED = auto()
    UNKNOWN = auto()
    WRONG_KEY = auto()
    CANCELLED = auto()


_ENDS = {JobState.FINISHED: FinishResult.FINISHED, JobState.CANCELLED: FinishResult.CANCELLED}


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """Session, run, id and arguments of one tool call, by which it is logged, and its job stored.

    Attributes:
        generation: the session's generation. After a reset, neither a call nor a job of the former generation
            can begin.
        run: the id of the ADK invocation.
        fence: token of the turn that makes the call; once another worker owns the turn, the call can neither begin nor
            end.
    """

    session: str
    generation: int
    run: str
    id: str
    tool: str
    arguments: Mapping[str, Any]
    fence: FencingToken | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job: JSON, or the text of an error."""

    value: Any
    outcome: JobOutcome = "done"

    @classmethod
    def from_json(cls, value: Any) -> "JobResult":
        """Return a result that another program gave: an object with only an `error` means that it failed."""
        has_failed = isinstance(value, dict) and set(value) == {"error"}
        return cls(value["error"], "failed") if has_failed else cls(value)


@dataclass(frozen=True, slots=True)
class Job:
    """Job of a person that has not ended.

    Attributes:
        call: the tool and its arguments, shortened.
    """

    id: str
    place: str
    call: str
    created_at: float


class JobStore:
    """Store of jobs: rows of `jobs`; failures of the database are retried for at most 90 s.

    Args:
        wake: makes this worker place the entry of a finished job now.
    """

    def __init__(self, database: Database, wake: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._wake = wake

    async def create(
        self,
        id_: str,
        call: ToolInvocation,
        message: InboxMessage,
        *,
        target: str = "",
        is_shared: bool = False,
        owner: str | None = None,
        key: str = "",
        external_id: str | None = None,
    ) -> str:
        """Store the job of a call, and return its id: `id_`, or the id that an earlier attempt stored.

        Args:
            message: the message whose turn makes the call; the result begins a turn for its author, in its session.
            target: the `Trigger.target` of that turn.
            is_shared: see `Trigger.is_shared`.
            owner: the id of the worker that runs the job; None for a ticket.
            key: the key of a ticket; it replaces that of an earlier attempt. Without a key, only a program with access
                to the database finishes the ticket.
            external_id: the tool's own id of the ticket.

        Raises:
            SessionResetError, TurnLostError, StoreError: the job is not stored.
            ToolError: too many jobs of the author run.
        """
        agent = message.trigger.agent if message.trigger else ""
        trigger = Trigger("job", id_, call.tool, 0.0, target=target, agent=agent, is_shared=is_shared)
        answered = replace(
            message,
            event_key=get_event_key(id_),
            text=_describe_call(call),
            attachments=(),
            references=(),
            replied_id="",
            is_addressed=True,
            trigger=trigger,
        )
        row = {
            "id": id_,
            "session": call.session,
            "generation": call.generation,
            "place": message.place,
            "platform": message.platform,
            "author": message.author,
            "message": answered.to_json(),
            "tool": call.tool,
            "turn": call.fence.turn if call.fence else "",
            "run": call.run,
            "call_id": call.id,
            "owner": owner,
            "key_hash": hash_key(key) if key else None,
            "external_id": external_id,
            "state": JobState.RUNNING,
            "created_at": time.time(),
        }

        async def write(connection: AsyncConnection) -> str:
            await lock_session_and_turn(connection, call.session, call.generation, call.fence, read=True)
            is_same = _is_of_call(call)
            known = (await connection.execute(sa.select(jobs.c.id).where(is_same))).scalar_one_or_none()
            if known is None:
                if owner or key:
                    await _check_limit(connection, message)
                await connection.execute(build_insert(connection.dialect.name, jobs).values(row))
                return id_
            if key:
                await connection.execute(sa.update(jobs).where(is_same).values(key_hash=row["key_hash"]))
            return str(known)

        return await self._database.write_with_retries(write, operation=f"job {id_}")

    async def finish(self, id_: str, result: JobResult, *, key: str | None = None) -> FinishResult:
        """End a running job, and store the inbox entry with its result, in one transaction.

        A repeated call changes nothing, and has the same result.

        Args:
            key: the key of the ticket, which must be right; None for callers that need none.

        Raises:
            StoreError: the result may not be stored; the call may be repeated.
        """
        prompt = result if isinstance(result.value, str) else replace(result, value=_to_json_text(result.value))

        async def write(connection: AsyncConnection) -> FinishResult:
            row = (await connection.execute(sa.select(jobs).where(jobs.c.id == id_))).one_or_none()
            if (refusal := _find_refusal(row, key)) is not None or row is None:
                return refusal or FinishResult.UNKNOWN
            generation = await lock_session_row(connection, row.session)
            message = next(iter(list_readable_messages([row.message])), None)
            if message is None or generation != row.generation:
                return FinishResult.CANCELLED
            if not await _end(connection, jobs.c.id == id_, JobState.FINISHED):
                # it ended before the session was locked
                state = await connection.scalar(sa.select(jobs.c.state).where(jobs.c.id == id_))
                return FinishResult.FINISHED if state == JobState.FINISHED else FinishResult.CANCELLED
            await append_triggered(connection, _answer_message(message, prompt))
            return FinishResult.FINISHED

        finished = await self._database.write_with_retries(write, operation=f"job {id_}")
        self._wake()
        return finished

    async def check_key(self, id_: str, key: str) -> FinishResult | None:
        """Return the result that `finish` would have with a key; None if it would store the result."""
        async with self._database.read() as connection:
            row = (await connection.execute(sa.select(jobs).where(jobs.c.id == id_))).one_or_none()
        return _find_refusal(row, key)

    async def find_id(self, external_id: str) -> str | None:
        """Return the id of the job with the tool's own id of its ticket; None if several run, or none."""
        query = sa.select(jobs.c.id, jobs.c.state).where(jobs.c.external_id == external_id)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        found = [row.id for row in rows if row.state == JobState.RUNNING] or [row.id for row in rows]
        return found[0] if len(found) == 1 else None

    async def cancel(self, id_: str, *, author: str | None = None) -> bool:
        """End a running job without a result, and return whether it ran; with an `author`, only a job of theirs."""
        is_theirs = sa.true() if author is None else jobs.c.author == author
        async with self._database.write() as connection:
            return bool(await _end(connection, (jobs.c.id == id_) & is_theirs, JobState.CANCELLED))

    async def cancel_ticket(self, call: ToolInvocation) -> None:
        """Cancel the ticket of a call, unless it was finished."""

        async def write(connection: AsyncConnection) -> None:
            await _end(connection, _is_of_call(call) & jobs.c.owner.is_(None), JobState.CANCELLED)

        await self._database.write_with_retries(write, operation=f"call {call.id} of {call.tool}")

    async def list_of_person(self, platform: str, author: str) -> list[Job]:
        """Return the running jobs of a person, newest first, at most `MAX_RUNNING_JOBS`."""
        query = (
            sa.select(jobs)
            .where(jobs.c.author == author, jobs.c.platform == platform, IS_RUNNING_JOB)
            .order_by(jobs.c.created_at.desc())
            .limit(MAX_RUNNING_JOBS)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Job(row.id, row.place, message.text, row.created_at)
            for row in rows
            for message in list_readable_messages([row.message])
        ]

    async def list_watched(self, lease: Lease) -> dict[str, bool]:
        """Return the ids of the running jobs of a worker and of dead workers, each with whether its worker lives."""
        is_own = jobs.c.owner == lease.worker_id
        watched = jobs.c.owner.is_not(None) & (is_own | lease.has_no_live_worker(jobs.c.owner))
        async with self._database.read() as connection:
            rows = await connection.execute(sa.select(jobs.c.id, is_own).where(IS_RUNNING_JOB, watched))
            return {id_: bool(own) for id_, own in rows}


def _find_refusal(row: sa.Row[Any] | None, key: str | None) -> FinishResult | None:
    """Return why a job cannot be finished with a key, or that it is finished; without a key, none is needed."""
    if row is None:
        return FinishResult.UNKNOWN
    if key is not None and not (row.key_hash and hmac.compare_digest(hash_key(key), row.key_hash)):
        return FinishResult.WRONG_KEY
    return _ENDS.get(row.state)


def _is_of_call(call: ToolInvocation) -> sa.ColumnElement[bool]:
    return (jobs.c.session == call.session) & (jobs.c.run == call.run) & (jobs.c.call_id == call.id)


async def _end(connection: AsyncConnection, condition: sa.ColumnElement[bool], state: JobState) -> int:
    """End matching jobs that run, and return their number."""
    ended = {"state": state, "finished_at": time.time(), "owner": None, "message": None}
    return (await connection.execute(sa.update(jobs).where(condition, IS_RUNNING_JOB).values(ended))).rowcount


async def _check_limit(connection: AsyncConnection, message: InboxMessage) -> None:
    """Raise `ToolError` if no further job of a message's author may run; tickets without a key do not count."""
    is_theirs = (jobs.c.author == message.author) & (jobs.c.platform == message.platform)
    is_counted = IS_RUNNING_JOB & (jobs.c.owner.is_not(None) | jobs.c.key_hash.is_not(None))
    running = await connection.scalar(sa.select(sa.func.count()).where(is_theirs, is_counted)) or 0
    if running >= MAX_RUNNING_JOBS:
        count = format_count(running, "background job")
        raise ToolError(f"{count} of this user are running: wait until one ends, or let them cancel one by /schedule")


def get_event_key(id_: str) -> str:
    """Return the event key of the inbox entry with a job's result."""
    return f"job:{id_}"


def new_job_id() -> str:
    """Return a random job id of ten hexadecimal digits: users can quote it."""
    return secrets.token_hex(5)


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _describe_call(call: ToolInvocation) -> str:
    secrets_ = get_run_secrets()
    masked = secrets_.mask(call.arguments, secrets_.paths.get(call.id, frozenset())) if secrets_ else call.arguments
    arguments = _to_json_text(masked) if masked else ""
    if len(arguments) > MAX_ARGUMENTS_CHARACTERS:
        arguments = f"{arguments[:MAX_ARGUMENTS_CHARACTERS]}…"
    return storable_text(f"{call.tool}({redact_vendor_keys(arguments)})")


def _to_json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):  # it contains itself, or has keys that JSON cannot have
        return f"({type(value).__name__})"


def _answer_message(message: InboxMessage, result: JobResult) -> InboxMessage:
    """Return the entry that begins the turn for a result: the call, and the result set off as data."""
    assert message.trigger is not None, "`create` sets it"
    now = time.time()
    trigger = replace(message.trigger, due_at=now, outcome=result.outcome)
    return replace(message, text=_write_prompt(message, result), sent_at=now, trigger=trigger)


_ENDINGS: dict[JobOutcome, str] = {
    "done": "has ended. Tell the user the result",
    "failed": "has failed. Tell the user why",
    "interrupted": "was interrupted by a restart, and may have taken effect. Tell the user",
}


def _write_prompt(message: InboxMessage, result: JobResult) -> str:
    id_ = message.trigger.id if message.trigger else ""
    call = escape_brackets(message.text)
    line = f"{QUOTE_OPEN}The background job {id_}, {call}, {_ENDINGS[result.outcome]}.{QUOTE_CLOSE}"
    if not result.value:
        return line
    whole = redact_vendor_keys(storable_text(result.value))
    text = whole[:MAX_RESULT_CHARACTERS]
    title = f"Result of the job {id_}"
    if len(whole) > len(text):
        title += f", the first {len(text):,} of {len(whole):,} characters"
    quote = build_quote(title, [f"{LINE_PREFIX}{part}" for part in escape_brackets(text).splitlines()])
    return f"{line}\n{quote}"
