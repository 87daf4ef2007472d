"""Compaction: replaces the oldest turns of a long history by a summary.

A task begins to summarize some seconds after the end of a turn, and is cancelled when a new turn begins. A failure is
logged, and the oldest messages are not sent to the model. If several workers summarize one session at once, only one
summary is stored. The summarized messages stay stored, but are no longer sent to the model.

The next summary replaces the former one, and covers its messages and those since.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from cachetools import TTLCache
from sqlalchemy.ext.asyncio import AsyncConnection

from core.observability.secret_redaction import format_error
from core.sessions.codec import NEWEST_FIRST, OLDEST_FIRST, is_in_session, to_row
from core.sessions.history import DEFAULT_BUDGET_TOKENS, DEFAULT_MAX_TURNS
from core.sessions.history_summary import GeneratedSummary, Summarizer, create_summary_event, get_summary_start
from core.sessions.lifecycle import find_session_row, lock_session_row
from core.store.database import Database
from core.store.schema import messages, turns
from core.turns.queries import is_active
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import TurnRunner
from core.usage.meter import set_current_meter
from core.usage.spending_limits import SpendingLimiter

log = logging.getLogger(__name__)

#: `START_FRACTION` of a limit starts a summary, which leaves out the newest `KEPT_FRACTION`: 32 and 16 of 40 turns.
START_FRACTION, KEPT_FRACTION = 0.8, 0.4

#: Seconds between a turn and its summary; the time limit of a summary; the pause of a session after a failure.
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

#: A summary has at most `MAX_SUMMARY_TOKENS` tokens, and at most the token budget divided by `SUMMARY_DIVISOR`.
MAX_SUMMARY_TOKENS, SUMMARY_DIVISOR = 2_000, 8


@dataclass(frozen=True, slots=True)
class _HistoryPart:
    """The part of a history that the next summary covers.

    Attributes:
        previous: the text of the former summary; empty if there is none.
        begin: the time of the first covered message.
        rows: the covered rows of `messages` after the former summary, oldest first, with the columns `_READ`.
    """

    previous: str
    begin: float
    rows: Sequence[sa.Row[Any]]


class HistoryCompactor:
    """Background service that replaces old messages of a session by a summary.

    Args:
        wake: makes this worker claim turns again: a claim skips a session whose row is locked.
        spending_limiter: raises if a spending limit is reached; the cost counts for the people of the turn.
        budget: the most tokens of history that are sent to the model; 0 for 32,000. None turns summaries off.
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
        self._delay_seconds = delay_seconds
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled = set[asyncio.Task[None]]()
        self._failed: TTLCache[str, bool] = TTLCache(MAX_FAILED, RETRY_SECONDS)

    async def run_turn(self, turn: Turn, answer: TurnRunner) -> None:
        """Cancel the summary of the turn's session, run the turn, and schedule a summary, unless the turn fails."""
        self.cancel(turn.session_id)
        await answer(turn)
        self.schedule(turn)

    def schedule(self, turn: Turn) -> None:
        """Start a task that summarizes a session later, if its history is long then.

        The task waits for `delay_seconds`. It summarizes if the messages without a summary have 80% of the turns or of
        the tokens that may be sent to the model. A failure is logged. Nothing happens if summaries are off, if the
        session has such a task, or if its last summary failed less than 300 s ago.
        """
        session = turn.session_id
        if self._is_enabled and session not in self._tasks and session not in self._failed:
            task = self._tasks[session] = asyncio.create_task(self._summarize_later(turn), name=f"summary of {session}")
            task.add_done_callback(lambda done: self._forget_task(session, done))

    def cancel(self, session_id: str) -> None:
        """Cancel the scheduled or running summary of a session, without a wait for its end."""
        if task := self._tasks.pop(session_id, None):
            self._cancelled.add(task)
            task.cancel()

    async def wait_until_idle(self) -> None:
        """Wait for all scheduled and cancelled summaries to end; cancel none."""
        while tasks := [*self._tasks.values(), *self._cancelled]:
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
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
                async with self._database.read() as connection:
                    session = await find_session_row(connection, turn.session_id)
                    part = await self._read_part(connection, turn)
                if session is not None and part is not None:
                    async with self._spending_limiter.limit_followup(meter):
                        await self._summarize(turn, session.model, part)
        except Exception as error:
            self._failed[turn.session_id] = True
            log.warning("session %s cannot be summarized: %s", turn.session_id, format_error(error))

    async def _summarize(self, turn: Turn, model: str | None, part: _HistoryPart) -> None:
        """Summarize a part of a session's history by a model call, and store the summary.

        The summary is dropped if a turn of the session runs by now. It is also dropped if another summary, a deletion
        or a redaction has changed the part.
        """
        summary = await self._summarizer.summarize(
            part.previous, part.rows, agent=turn.agent, model=model, max_tokens=self._summary_limit
        )
        busy = sa.select(turns.c.id).where(turns.c.session == turn.session_id, is_active(turns))
        async with self._database.write() as connection:
            await lock_session_row(connection, turn.session_id)
            is_idle = (await connection.execute(busy)).first() is None
            if is_idle and await self._read_part(connection, turn) == part:
                await self._save_summary(connection, turn, part, summary)
                log.info("session %s: summarized its messages up to id %d", turn.session_id, part.rows[-1].id)
            await self._turns.notify_workers(connection)  # a claim skips a session whose row is locked
        self._wake()

    async def _save_summary(
        self, connection: AsyncConnection, turn: Turn, part: _HistoryPart, summary: GeneratedSummary
    ) -> None:
        last = part.rows[-1]
        row = to_row(create_summary_event(summary.text, begin=part.begin, end=last.created_at), tokens=summary.tokens)
        row |= {
            "session": turn.session_id,
            "generation": turn.generation,
            "content": summary.text,
            "summarized_id": last.id,
        }
        old = (messages.c.session == turn.session_id) & messages.c.summarized_id.is_not(None)
        await connection.execute(sa.delete(messages).where(old))
        await connection.execute(sa.insert(messages).values(row))

    async def _read_part(self, connection: AsyncConnection, turn: Turn) -> _HistoryPart | None:
        """Return the part of a session's history that the next summary covers.

        These are the oldest turns after the former summary, at most `budget` tokens. The newest turns are left out: the
        fraction `KEPT_FRACTION` of the limits. None if nothing is left then, or if the messages without a summary have
        less than `START_FRACTION` of both limits.
        """
        c = messages.c
        in_generation = is_in_session(turn.session_id) & (c.generation == turn.generation)
        newest = sa.select(messages).where(in_generation, c.summarized_id.is_not(None)).order_by(*NEWEST_FIRST).limit(1)
        before = (await connection.execute(newest)).one_or_none()
        last = before.summarized_id if before else 0
        since = in_generation & c.summarized_id.is_(None) & (c.id > last)
        sizes = sa.select(c.role, c.tokens).where(since).order_by(*NEWEST_FIRST).limit(MAX_MESSAGES_READ)
        if not self._is_full((await connection.execute(sizes)).all()):
            return None
        read = sizes.add_columns(c.id, c.tool_calls)
        end = find_first_kept_id(
            (await connection.execute(read)).all(),
            tokens=int(self._history_limit * KEPT_FRACTION),
            turns=int(DEFAULT_MAX_TURNS * KEPT_FRACTION),
        )
        rows = list[sa.Row[Any]]()
        while sum(row.tokens for row in rows) <= self._budget:
            page = sa.select(*_READ).where(since, c.id > last, c.id < end).order_by(*OLDEST_FIRST).limit(PAGE_SIZE)
            page_rows = (await connection.execute(page)).all()
            if not page_rows:
                break
            rows = [*rows, *page_rows]
            last = page_rows[-1].id
        begin = get_summary_start(before) if before else None
        turn_rows = _cut_to_whole_turns(rows, self._budget)
        if not turn_rows:
            return None
        return _HistoryPart(before.content if before else "", begin or turn_rows[0].created_at, turn_rows)

    def _is_full(self, rows: Sequence[Any]) -> bool:
        turn_count = sum(row.role == "user" for row in rows)
        tokens = sum(row.tokens for row in rows)
        return bool(turn_count >= DEFAULT_MAX_TURNS * START_FRACTION or tokens >= self._history_limit * START_FRACTION)


_READ = [messages.c[name] for name in ("id", "role", "author", "content", "tool_calls", "tokens", "created_at")]


def find_first_kept_id(newest: Sequence[Any], *, tokens: int, turns: int) -> int:
    """Return the id of the oldest message that a summary must not cover; 0 if it can cover nothing.

    This user message begins a turn. The call of each tool response after the message also follows the message. At least
    one turn is kept. The rows are those of `messages`, newest first.
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
    """Return the oldest turns that fit in `budget` tokens; at least one turn.

    If the rows have more tokens, the last turn may be incomplete, and is left out, unless it is the only one.
    """
    begins = [place for place, row in enumerate(rows) if row.role == "user" and place]
    ends = [*begins, len(rows)] if sum(row.tokens for row in rows) <= budget else begins
    fitting = [end for end in ends if sum(row.tokens for row in rows[:end]) <= budget]
    return rows[: max(fitting, default=min(ends, default=len(rows)))]
