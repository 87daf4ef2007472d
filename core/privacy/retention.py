"""Periodic deletion of old data: expired messages, and rows that are not needed."""

import asyncio
import logging
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every
from core.messages.inbox_message import InboxOutcome
from core.privacy.deletion import DeletionRequest, DeletionService
from core.store.database import Database
from core.store.schema import denial_notices, inbox, jobs, messages, prompts, tool_calls, turns, workers
from core.turns.queries import is_message, is_waiting
from core.usage.prices import Prices
from core.usage.user_rate_limits import is_notice_expired

log = logging.getLogger(__name__)

#: The most rows of one table that are deleted in one transaction.
BATCH_SIZE = 200

#: Seconds between two transactions.
PAUSE_SECONDS = 0.5

RETRY_SECONDS = 60.0

HOUR_SECONDS, DAY_SECONDS = 3600.0, 86_400.0

INTERVAL_SECONDS = HOUR_SECONDS


class RetentionService:
    """Service that deletes messages older than `RETENTION_DAYS`.

    Every worker runs this service. Messages of a running turn stay.

    Args:
        days: the days after which messages are deleted; 0 for never. Messages expire at midnight (UTC), so that the
            summary of a session is deleted at most once a day.
    """

    def __init__(self, database: Database, prices: Prices, *, days: float) -> None:
        self._database = database
        self._deletion = DeletionService(database, prices)
        self._days = days

    async def run(self) -> None:
        """Delete expired messages now and every hour, until cancelled; return at once if they never expire.

        Errors are logged, and the next attempt follows after `RETRY_SECONDS`.
        """
        if self._days:
            failure = "messages older than RETENTION_DAYS cannot be deleted"
            await run_every(INTERVAL_SECONDS, self.delete_expired, failure=failure, retry_seconds=RETRY_SECONDS)

    async def delete_expired(self) -> None:
        """Delete sessions and messages that have expired; log their numbers if any.

        Everything before midnight (UTC) `days` days ago has expired. Only `run` takes 0 days as "never": this method
        then deletes everything from before today.
        """
        async with self._database.read() as connection:
            now = await connection.scalar(sa.select(self._database.now)) or 0.0
        before = now // DAY_SECONDS * DAY_SECONDS - self._days * DAY_SECONDS
        result = await self._deletion.delete(DeletionRequest(before=before), pause=PAUSE_SECONDS)
        if result.conversations or result.messages:
            log.info("retention: deleted %d sessions and %d messages", result.conversations, result.messages)


class CleanupService:
    """Service that deletes rows that are not needed any more.

    These are ended turns, inbox messages, tool calls, ended background jobs and unused tickets, dead workers, expired
    denial notices, and the secrets and prompts of old runs. Entries of the inbox that are no messages are deleted after
    a day. The newest inbox message of each author at a place stays, since it has the author's latest session. A turn
    stays while another turn for the same messages does, while its cost is not stored, or while a rerun of it waits. A
    worker's row is deleted an hour after its lease expired.

    Args:
        days: the days after which ended turns, inbox messages, tool calls and secrets are deleted.
        prompt_days: the days after which prompts are deleted; 0 deletes all.
    """

    def __init__(self, database: Database, *, days: float, prompt_days: float = 0) -> None:
        self._database = database
        self._days = days
        self._prompt_days = prompt_days

    async def run(self) -> None:
        """Delete all rows that are not needed now and every hour, until cancelled; log errors."""

        async def clean_up() -> None:
            while await self.delete_batch():  # noqa: ASYNC110 - a pause between transactions
                await asyncio.sleep(PAUSE_SECONDS)

        await run_every(INTERVAL_SECONDS, clean_up, failure="old turns cannot be deleted", retry_seconds=RETRY_SECONDS)

    async def delete_batch(self) -> int:
        """Delete at most `BATCH_SIZE` unneeded rows per table, in one transaction; return their number."""
        async with self._database.write() as connection:
            now = self._database.now
            before = now - self._days * DAY_SECONDS
            an_hour_ago = now - HOUR_SECONDS
            old_prompts = prompts.c.called_at < now - self._prompt_days * DAY_SECONDS
            return (
                await _delete(connection, turns, _is_expired_turn(before))
                + await _delete(connection, inbox, _is_expired_message(before))
                + await _delete(connection, inbox, ~is_message(inbox) & (inbox.c.accepted_at < now - DAY_SECONDS))
                + await _delete(connection, tool_calls, tool_calls.c.started_at < before)
                + await _delete(connection, jobs, _is_expired_job(before))
                + await _delete(connection, workers, workers.c.lease_expires_at < an_hour_ago)
                + await _delete(connection, denial_notices, is_notice_expired())
                + await _empty(connection, messages.c.unmasked, messages.c.created_at < before)
                + await _empty(connection, prompts.c.ciphertext, old_prompts)
            )


def _is_expired_turn(before: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a turn ended before a time and is not needed.

    All other turns for the same messages must have ended before that time too. The cost of the turn must be stored in
    the spending ledger, and no request for a rerun of the turn may wait.
    """
    other = turns.alias("other")
    is_young = other.c.finished_at.is_(None) | (other.c.finished_at >= before)
    has_young = sa.exists().where(other.c.session == turns.c.session, other.c.origin == turns.c.origin, is_young)
    has_rerun = sa.exists().where(inbox.c.session == turns.c.session, is_waiting(inbox), inbox.c.parent == turns.c.id)
    is_counted = turns.c.cost.is_not(None)
    return (turns.c.finished_at < before) & is_counted & ~has_young & ~has_rerun


def _is_expired_job(before: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a job ended before a time, or is a ticket from before it that nobody finished."""
    return jobs.c.owner.is_(None) & (sa.func.coalesce(jobs.c.finished_at, jobs.c.created_at) < before)


def _is_expired_message(before: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an inbox message is old and not needed.

    No turn may need the message: it has an outcome, or its turn is deleted. Of each author's messages at a place, the
    newest one stays, and so does the newest one to the bot.
    """
    newer = inbox.alias("newer")
    same_kind = newer.c.outcome.is_distinct_from(InboxOutcome.UNADDRESSED) | (
        inbox.c.outcome == InboxOutcome.UNADDRESSED
    )
    by_author = (newer.c.place == inbox.c.place) & (newer.c.author == inbox.c.author)
    has_newer = sa.exists().where(by_author, newer.c.sent_at > inbox.c.sent_at, same_kind, is_message(newer))
    has_turn = sa.exists().where(turns.c.id == inbox.c.turn)
    is_ended = inbox.c.outcome.is_not(None) | (inbox.c.turn.is_not(None) & ~has_turn)
    return (inbox.c.accepted_at < before) & is_ended & has_newer


async def _empty(connection: AsyncConnection, column: sa.Column[Any], condition: sa.ColumnElement[bool]) -> int:
    """Set a column to null in at most `BATCH_SIZE` matching rows where it is not; return their number."""
    key = column.table.c.id
    batch = sa.select(key).where(condition, column.is_not(None)).limit(BATCH_SIZE)
    update = sa.update(column.table).where(key.in_(batch)).values({column: None})
    return (await connection.execute(update)).rowcount


async def _delete(connection: AsyncConnection, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
    """Delete at most `BATCH_SIZE` matching rows of a table, and return their number."""
    key = list(table.primary_key)
    batch = sa.select(*key).where(condition).order_by(*key).limit(BATCH_SIZE)
    return (await connection.execute(sa.delete(table).where(sa.tuple_(*key).in_(batch)))).rowcount
