"""Spending limits per day, checked before each model call, over all workers.

Before each call one transaction writes estimated rows to `spending`: the calls of the turn so far, those that run
beside it, and the expected cost of the next one, with its files (`core.usage.file_estimates`). A call is made while the
spending and all reservations are below every limit. An answer that grows longer than expected is checked again, with
twice its length, and ends if the others have reached a limit. So the last call may exceed a limit by its own cost, and
no call follows it, also if many begin at once. The rows belong to the turn, not to the worker: the next attempt at the
turn replaces them, and so do the final rows when the turn is recorded (`core.usage.spending_ledger`).
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import (
    AuthorSpendingLimitError,
    ChannelSpendingLimitError,
    DailySpendingLimitError,
    ModelSpendingLimitError,
    SpendingLimitError,
    StoreError,
    UserSpendingLimitError,
)
from core.observability.secret_redaction import format_error
from core.store.database import Database
from core.store.schema import spending
from core.usage.meter import EXPECTED_OUTPUT_TOKENS, ModelCall, RunningCall, UsageMeter, utc_day
from core.usage.prices import Prices, format_dollars
from core.usage.spending_ledger import GROUP_COLUMNS, SpendingStore, make_rows

log = logging.getLogger(__name__)

#: Advisory lock on PostgreSQL, held from a check until its rows are committed. SQLite has one writer at a time.
_LOCK_KEY = 0x6361_7073


_ERROR_CLASSES: Mapping[str, type[SpendingLimitError]] = {
    "user": UserSpendingLimitError,
    "channel": ChannelSpendingLimitError,
    "model": ModelSpendingLimitError,
    "all": DailySpendingLimitError,
}


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """Spending limits per day (UTC), in trillionths of a dollar; 0 is no limit.

    Attributes:
        user: limit of each author of messages.
        channel: limit of each channel and of each conversation of direct messages: `InboxMessage.place`.
    """

    user: int = 0
    channel: int = 0
    model: int = 0
    all: int = 0

    def __bool__(self) -> bool:
        return any((self.user, self.channel, self.model, self.all))


@dataclass(frozen=True, slots=True)
class SpendingUsage:
    """Spending of today under one limit.

    Attributes:
        kind: `user`, `channel`, `model` or `all`.
        key: the user (`platform:id`), `InboxMessage.place` or model; empty for `all`.
        spent: spent and reserved costs, in trillionths of a dollar, as is `limit`.
    """

    kind: str
    key: str
    spent: int
    limit: int


class SpendingLimiter:
    """Check of the daily spending limits before each model call, over all workers."""

    def __init__(self, database: Database, prices: Prices, spending: SpendingStore, limits: SpendingLimits) -> None:
        self._database = database
        self._prices = prices
        self._spending = spending
        self._limits = limits

    @asynccontextmanager
    async def limit_run(self, meter: UsageMeter) -> AsyncIterator[None]:
        """Check the spending limits before each model call of the run in the block.

        At exit, the turn is recorded if it has ended; a failure of that is logged. Without spending limits, nothing is
        done.
        """
        if not self._limits:
            yield
            return
        self._bind_meter(meter)
        try:
            yield
        finally:
            try:
                await self._spending.record_turn(meter.turn)
            except StoreError as error:
                log.warning("turn %s: its cost will be counted later: %s", meter.turn, format_error(error))

    @asynccontextmanager
    async def limit_followup(self, meter: UsageMeter) -> AsyncIterator[None]:
        """Check the spending limits before each model call of a `UsageMeter.followup_meter` in the block.

        At exit, also without limits, the calls are added to the turn and inserted into `spending`. A failure of that is
        logged.
        """
        self._bind_meter(meter)
        try:
            yield
        finally:
            try:
                await self._spending.add_followup(meter)
            except StoreError as error:
                log.warning("turn %s: the calls after its end are not counted: %s", meter.turn, format_error(error))

    def _bind_meter(self, meter: UsageMeter) -> None:
        async def check_limits(model: str, estimate_input: Callable[[], int], call: RunningCall | None = None) -> None:
            await self.reserve(meter, model, estimate_input(), call)

        async def find_spent_authors(authors: Collection[str]) -> Mapping[str, SpendingLimitError]:
            return await self._find_spent_authors(meter, authors)

        if self._limits:
            meter.check_limits = check_limits
            meter.find_spent_authors = find_spent_authors

    async def list_nearly_spent(self, fraction: float) -> list[SpendingUsage]:
        """Return the limits of which at least a fraction (0 to 1) is spent or reserved today (UTC).

        There is one item for each user, channel or model. Items of the same limit are together, the highest spending
        first.
        """
        usages = list[SpendingUsage]()
        today = spending.c.day == utc_day(time.time())
        total = sa.func.sum(spending.c.cost)
        async with self._database.read() as connection:
            for kind, limit in asdict(self._limits).items():
                if not limit:
                    continue
                key = sa.literal("") if kind == "all" else GROUP_COLUMNS[kind]
                query = (
                    sa.select(key, total)
                    .where(today)
                    .having(total >= int(limit * fraction))
                    .order_by(total.desc(), key)
                )
                rows = await connection.execute(query if kind == "all" else query.group_by(key))
                usages += [SpendingUsage(kind, of, int(spent), limit) for of, spent in rows if of or kind != "user"]
        return usages

    async def _find_spent_authors(
        self, meter: UsageMeter, authors: Collection[str]
    ) -> Mapping[str, SpendingLimitError]:
        """Return an error for each author whose limit is reached without the costs of the meter's own turn."""
        if not (limit := self._limits.user):
            return {}
        is_other = spending.c.turn.is_distinct_from(meter.turn)
        query = (
            sa.select(spending.c.author)
            .where(spending.c.day == meter.day, spending.c.author.in_(authors), is_other)
            .group_by(spending.c.author)
            .having(sa.func.sum(spending.c.cost) >= limit)
        )
        async with self._database.read() as connection:
            spent = (await connection.execute(query)).scalars().all()
        amount = format_dollars(limit)
        return {
            author: AuthorSpendingLimitError(f"the spending limit of {author} is reached", limit=amount)
            for author in spent
        }

    async def reserve(self, meter: UsageMeter, model: str, input_tokens: int, call: RunningCall | None = None) -> None:
        """Check the spending limits, and write a call's expected cost to `spending`.

        First, estimated rows of the turn's calls so far, and of its other running calls, replace its former rows. Then
        the limits are checked, and the expected cost is written if none is reached. The rows of the other calls are
        committed in both cases, and so is the expected cost of a call that has begun.

        Args:
            call: the call to make, one of `UsageMeter.running`, or one whose answer is longer than expected; its
                `reserved` is set. None for a check before a call is prepared.

        Raises:
            SpendingLimitError: a limit is reached.
        """
        output_tokens = call.expected_output if call is not None else EXPECTED_OUTPUT_TOKENS
        expected = ModelCall(model, input=input_tokens, output=output_tokens)
        async with self._database.write() as connection:
            if not self._database.is_sqlite:
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_KEY)))
            await connection.execute(sa.delete(spending).where(spending.c.turn == meter.turn))
            beside = [other.reserved for other in meter.running if other is not call and other.reserved is not None]
            await self._insert_rows(connection, meter, [*meter.calls, *beside])
            limit_error = await self._find_reached_limit(connection, meter, model)
            if limit_error is None or (call is not None and call.reserved is not None):
                await self._insert_rows(connection, meter, [expected])
                if call is not None:
                    call.reserved = expected
        if limit_error is not None:
            raise limit_error

    async def _insert_rows(self, connection: AsyncConnection, meter: UsageMeter, calls: Sequence[ModelCall]) -> None:
        if rows := make_rows(calls, meter.to_attribution(), self._prices, turn=meter.turn):
            await connection.execute(sa.insert(spending), rows)

    async def _find_reached_limit(
        self, connection: AsyncConnection, meter: UsageMeter, model: str
    ) -> SpendingLimitError | None:
        """Return the error of the first reached limit: of the user, the channel, the model, or all spending."""
        keys = {"user": meter.author, "channel": meter.place, "model": model, "all": ""}
        for kind, limit in asdict(self._limits).items():
            if not limit or (kind == "user" and not meter.author):
                continue
            has_key = sa.true() if kind == "all" else GROUP_COLUMNS[kind] == keys[kind]
            query = sa.select(sa.func.coalesce(sa.func.sum(spending.c.cost), 0))
            if int((await connection.execute(query.where(spending.c.day == meter.day, has_key))).scalar_one()) >= limit:
                message = f"the spending limit of {format_dollars(limit)} a day is reached ({kind} {keys[kind]})"
                return _ERROR_CLASSES[kind](message, limit=format_dollars(limit))
        return None
