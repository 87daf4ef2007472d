"""Compaction: replaces the oldest turns of a long history by a summary.

A summary begins some seconds after the end of a turn, and is cancelled when a new turn begins. A failure is logged,
and the history is cut as without a summary. Of several workers that summarize at once, the one that began last stores
its summary, in one transaction. The summarized messages stay stored, but are no longer sent to the model.

The next summary replaces the former one: it covers that one and the messages since.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from cachetools import TTLCache
from sqlalchemy.ext.asyncio import AsyncConnection

from core.secret_redaction import format_error
from core.sessions.codec import NEWEST_FIRST, OLDEST_FIRST, is_in_session, to_columns, to_row
from core.sessions.history import DEFAULT_BUDGET_TOKENS, DEFAULT_MAX_TURNS
from core.sessions.summarizer import GeneratedSummary, Summarizer, create_summary_event, get_summary_start
from core.store.database import Database
from core.store.fast_path import Statement
from core.store.schema import messages, sessions, turns
from core.turns.queries import is_active
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import TurnRunner
from core.usage.meter import set_current_meter
from core.usage.spending_limits import SpendingLimiter

log = logging.getLogger(__name__)

#: The fraction of a limit at which the oldest turns are summarized, and the fraction that stays: 32 and 16 of 40 turns.
START_FRACTION, KEPT_FRACTION = 0.8, 0.4

#: Seconds between a turn and the summary, time limit of a summary, and pause after a failure.
DELAY_SECONDS = 2.0
TIMEOUT_SECONDS = 120.0
RETRY_SECONDS = 300.0

#: The most sessions whose failures are remembered.
MAX_FAILED = 1_000

#: The most sessions that one process summarizes at once.
MAX_AT_ONCE = 4

#: The most messages that are read to measure a history, newest first; and the most per query.
MAX_MESSAGES_READ = 600
PAGE_SIZE = 200

#: The most tokens of a summary, and the divisor of the token budget that limits it too.
MAX_SUMMARY_TOKENS, SUMMARY_DIVISOR = 2_000, 8


@dataclass(frozen=True, slots=True)
class _HistoryPart:
    """The part of a history that the next summary covers.

    Attributes:
        previous: the text of the former summary; empty if there is none.
        begin: the time of the first covered message, in seconds since the epoch.
        rows: the messages after the former summary (`_READ`), oldest first.
    """

    previous: str
    begin: float
    rows: Sequence[sa.Row[Any]]


class HistoryCompactor:
    """Background service that replaces old messages of a session by a summary.

    Args:
        turns: checks that no turn runs, and notifies the other workers.
        wake: makes this worker claim turns again: a claim skips a session whose row is locked.
        spending_limiter: spending limits, which are checked first; the turn pays for the summary.
        budget: the most tokens of history that are sent to the model; None turns summaries off.
        turn_limit: the most turns of history that are sent to the model.
        delay_seconds: seconds between the end of a turn and the summary.
    """

    def __init__(
        self,
        database: Database,
        turns: TurnStore,
        summarizer: Summarizer,
        spending_limiter: SpendingLimiter,
        *,
        wake: Callable[[], None] = lambda: None,
        budget: int | None = DEFAULT_BUDGET_TOKENS,
        turn_limit: int = DEFAULT_MAX_TURNS,
        delay_seconds: float = DELAY_SECONDS,
    ) -> None:
        self._database = database
        self._turns = turns
        self._summarizer = summarizer
        self._spending_limiter = spending_limiter
        self._wake = wake
        self._is_enabled = budget is not None
        self._budget = budget or DEFAULT_BUDGET_TOKENS
        self._summary_limit = min(MAX_SUMMARY_TOKENS, self._budget // SUMMARY_DIVISOR)
        self._history_limit = self._budget - self._summary_limit  # the summary takes its tokens from the budget
        self._turn_limit = turn_limit
        self._delay_seconds = delay_seconds
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled = set[asyncio.Task[None]]()
        self._failed: TTLCache[str, bool] = TTLCache(MAX_FAILED, RETRY_SECONDS)

    async def run_turn(self, turn: Turn, answer: TurnRunner) -> None:
        """Cancel the session's summary, run the turn with `answer`, schedule the next one."""
        self.cancel(turn.session_id)
        await answer(turn)
        self.schedule(turn)

    def schedule(self, turn: Turn) -> None:
        """Start a task that summarizes a session after `delay_seconds` seconds, if it is long then.

        Nothing happens if the session has such a task, or its last summary failed less than `RETRY_SECONDS` ago.

        Args:
            turn: the turn that has ended; it names the session, its generation and its agent.
        """
        session = turn.session_id
        if self._is_enabled and session not in self._tasks and session not in self._failed:
            task = self._tasks[session] = asyncio.create_task(self._summarize_later(turn), name=f"summary of {session}")
            task.add_done_callback(lambda done: self._forget_task(session, done))

    def cancel(self, session_id: str) -> None:
        """Cancel the summary of a session, if there is one, without waiting for its end."""
        if task := self._tasks.pop(session_id, None):
            self._cancelled.add(task)
            task.cancel()

    async def wait_until_idle(self) -> None:
        """Wait for all scheduled and cancelled summaries to end."""
        while tasks := [*self._tasks.values(), *self._cancelled]:
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
        """Cancel all summaries and wait for their end."""
        for session in list(self._tasks):
            self.cancel(session)
        await self.wait_until_idle()

    def _forget_task(self, session_id: str, task: asyncio.Task[None]) -> None:
        self._cancelled.discard(task)
        if self._tasks.get(session_id) is task:
            del self._tasks[session_id]

    async def _summarize_later(self, turn: Turn) -> None:
        meter = turn.meter.followup_meter()
        set_current_meter(meter)
        try:
            await asyncio.sleep(self._delay_seconds)
            async with self._slots, asyncio.timeout(TIMEOUT_SECONDS):
                if await self._is_full(turn) and (session := await self._mark(turn)) is not None:
                    async with self._spending_limiter.limit_followup(meter):
                        await self._summarize(turn, session)
        except Exception as error:
            self._failed[turn.session_id] = True
            log.warning("session %s cannot be summarized: %s", turn.session_id, format_error(error))

    async def _is_full(self, turn: Turn) -> bool:
        """Return whether the history without a summary is long enough for one.

        It has to reach `START_FRACTION` of the most turns, or of the most tokens, that are sent.
        """
        rows = await self._database.run(UNSUMMARIZED, session=turn.session_id, generation=turn.generation)
        turn_count = sum(role == "user" for role, _ in rows)
        tokens = sum(int(count) for _, count in rows)
        return turn_count >= self._turn_limit * START_FRACTION or tokens >= self._history_limit * START_FRACTION

    async def _mark(self, turn: Turn) -> sa.Row[Any] | None:
        """Mark the session as being summarized and return its row; None if it is gone.

        Another worker that begins, a deletion and a redaction overwrite the mark: the summary is then not stored.
        """
        is_session = (sessions.c.id == turn.session_id) & (sessions.c.generation == turn.generation)
        marked = (
            sa.update(sessions).where(is_session).values(summarizing_worker=self._turns.worker_id).returning(sessions)
        )
        async with self._open_transaction() as connection:
            session: sa.Row[Any] | None = (await connection.execute(marked)).one_or_none()
        return session

    async def _summarize(self, turn: Turn, session: sa.Row[Any]) -> None:
        """Summarize the oldest turns, and store the summary.

        The summary is not stored if the mark has changed or a turn runs.

        Args:
            session: the marked row of `sessions`.
        """
        part = await self._read_part(turn)
        if not part.rows:
            return
        options = {"agent": turn.agent, "model": session.model}
        summary = await self._summarizer.summarize(part.previous, part.rows, max_tokens=self._summary_limit, **options)
        async with self._open_transaction() as connection:
            if await self._lock_marked_session(connection, session):
                await self._save_summary(connection, turn, part, summary)
                log.info("session %s: summarized its messages up to id %d", turn.session_id, part.rows[-1].id)

    async def _lock_marked_session(self, connection: AsyncConnection, marked: sa.Row[Any]) -> bool:
        """Lock a session; return whether it has its mark still and no active turn.

        Args:
            marked: the row of the session when it was marked.
        """
        c = sessions.c
        is_same = (c.id == marked.id) & (c.generation == marked.generation) & (c.created_at == marked.created_at)
        has_mark = sa.select(c.id).where(is_same, c.summarizing_worker == self._turns.worker_id).with_for_update()
        if (await connection.execute(has_mark)).first() is None:
            return False
        busy = sa.select(turns.c.id).where(turns.c.session == marked.id, is_active(turns))
        return (await connection.execute(busy)).first() is None

    async def _save_summary(
        self, connection: AsyncConnection, turn: Turn, part: _HistoryPart, summary: GeneratedSummary
    ) -> None:
        """Store a summary as a row of `messages`, and delete the session's former one."""
        last = part.rows[-1]
        row = to_columns(
            to_row(create_summary_event(summary.text, begin=part.begin, end=last.created_at)), summary.tokens
        )
        row |= {
            "session": turn.session_id,
            "generation": turn.generation,
            "content": summary.text,
            "last_covered_id": last.id,
        }
        old = (messages.c.session == turn.session_id) & messages.c.last_covered_id.is_not(None)
        await connection.execute(sa.delete(messages).where(old))
        await connection.execute(sa.insert(messages).values(row))

    async def _read_part(self, turn: Turn) -> _HistoryPart:
        """Return the oldest turns after the former summary that fit in `budget` tokens.

        The newest turns, which stay without a summary, are not among them.
        """
        c = messages.c
        in_generation = is_in_session(turn.session_id) & (c.generation == turn.generation)
        async with self._database.read() as connection:
            newest = (
                sa.select(messages)
                .where(in_generation, c.last_covered_id.is_not(None))
                .order_by(*NEWEST_FIRST)
                .limit(1)
            )
            before = (await connection.execute(newest)).one_or_none()
            since = in_generation & c.last_covered_id.is_(None)
            read = (
                sa.select(c.id, c.role, c.tokens, c.tool_calls)
                .where(since)
                .order_by(*NEWEST_FIRST)
                .limit(MAX_MESSAGES_READ)
            )
            newest_rows = (await connection.execute(read)).all()
            end = find_first_kept_id(
                newest_rows,
                tokens=int(self._history_limit * KEPT_FRACTION),
                turns=int(self._turn_limit * KEPT_FRACTION),
            )
            rows, last = list[sa.Row[Any]](), before.last_covered_id if before else 0
            while sum(row.tokens for row in rows) <= self._budget:
                page = sa.select(*_READ).where(since, c.id > last, c.id < end).order_by(*OLDEST_FIRST).limit(PAGE_SIZE)
                page_rows = (await connection.execute(page)).all()
                if not page_rows:
                    break
                rows, last = [*rows, *page_rows], page_rows[-1].id
        begin = get_summary_start(before.event) if before else None
        turn_rows = _cut_to_whole_turns(rows, self._budget)
        return _HistoryPart(
            before.content if before else "", begin or (turn_rows[0].created_at if turn_rows else 0.0), turn_rows
        )

    @asynccontextmanager
    async def _open_transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction; after its commit, all workers look for turns to claim."""
        async with self._database.write() as connection:
            yield connection
            await self._turns.notify_workers(connection)
        self._wake()


_READ = [messages.c[name] for name in ("id", "role", "author", "content", "tool_calls", "tokens", "created_at")]


def _select_unsummarized(_dialect: str) -> sa.Select[Any]:
    """Select role and tokens of the messages that no summary covers, newest first.

    At most `MAX_MESSAGES_READ` are selected.
    """
    c, summaries = messages.c, messages.alias("summaries")
    session, generation = sa.bindparam("session", type_=sa.Text), sa.bindparam("generation", type_=sa.Integer)
    covers = sa.select(sa.func.coalesce(sa.func.max(summaries.c.last_covered_id), 0)).where(
        summaries.c.session == session,
        summaries.c.generation == generation,
        summaries.c.long_running_calls.is_not(None),
    )
    in_generation = is_in_session(session) & (c.generation == generation) & c.last_covered_id.is_(None)
    newest = sa.select(c.role, c.tokens).where(in_generation, c.id > covers.scalar_subquery()).order_by(*NEWEST_FIRST)
    return newest.limit(sa.literal_column(str(MAX_MESSAGES_READ)))


UNSUMMARIZED = Statement(_select_unsummarized)


def find_first_kept_id(newest: Sequence[Any], *, tokens: int, turns: int) -> int:
    """Return the id of the oldest message that a summary must not cover; 0 for none.

    A turn begins at that message, and each tool response after it has its call there.

    Args:
        newest: rows of `messages` with `id`, `role`, `tokens` and `tool_calls`, newest first.
        tokens: the most tokens to keep; at least one turn is kept.
        turns: the most turns to keep.
    """
    turn_count = used = start = 0
    answers = set[str]()
    for row in newest:
        used += row.tokens
        answers -= {call["id"] for call in row.tool_calls or () if "output" not in call}
        answers |= {call["id"] for call in row.tool_calls or () if "output" in call}
        if row.role == "user" and not answers:
            turn_count += 1
            if start and (turn_count > turns or used > tokens):
                break
            start = row.id
    return start


def _cut_to_whole_turns(rows: Sequence[sa.Row[Any]], budget: int) -> Sequence[sa.Row[Any]]:
    """Return the first rows: whole turns within `budget` tokens, at least one turn."""
    begins = [place for place, row in enumerate(rows) if row.role == "user" and place]
    ends = [*begins, len(rows)] if sum(row.tokens for row in rows) <= budget else begins
    fitting = [end for end in ends if sum(row.tokens for row in rows[:end]) <= budget]
    return rows[: max(fitting, default=min(ends, default=len(rows)))]
