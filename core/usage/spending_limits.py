"""Spending limits per day, checked before each model call, over all workers.

Before each call one transaction writes provisional rows to the ledger: the calls of the turn so far, and the expected
cost of the next one. A call is made while its limits have something left, so one call may pass a limit by its own cost,
and no call follows it. The rows belong to the turn, not to the worker: its next attempt replaces them, and so do the
final rows when the turn is counted (`core.usage.spending`).
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import CapError, DayCapError, ModelCapError, PersonCapError, PlaceCapError, StoreError
from core.secret_redaction import traced
from core.store.database import Database
from core.store.schema import spending
from core.usage.meter import Meter, ModelCall, day_of
from core.usage.prices import Prices, dollars
from core.usage.spending import Spending, ledger_rows

log = logging.getLogger(__name__)

#: How many tokens a call is expected to write.
EXPECTED = 500

#: PostgreSQL: the advisory lock of a check until its rows are committed. SQLite has one writer at a time.
_LOCK = 0x6361_7073


_ERRORS: Mapping[str, type[CapError]] = {
    "person": PersonCapError,
    "place": PlaceCapError,
    "model": ModelCapError,
    "all": DayCapError,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The spending limits per day (UTC), in trillionths of a dollar; 0 is no limit."""

    person: int = 0
    place: int = 0
    model: int = 0
    all: int = 0

    def __bool__(self) -> bool:
        return any((self.person, self.place, self.model, self.all))


@dataclass(frozen=True, slots=True)
class Near:
    """A limit of which much is spent.

    Attributes:
        kind: `person`, `place`, `model` or `all`.
        of: the person, place or model; empty for all.
        spent: today, with reserved costs, in trillionths of a dollar.
    """

    kind: str
    of: str
    spent: int
    limit: int


class Caps:
    """Enforces the spending limits."""

    def __init__(self, database: Database, prices: Prices, spending: Spending, limits: Limits) -> None:
        self._database = database
        self._prices = prices
        self._spending = spending
        self._limits = limits

    @asynccontextmanager
    async def over(self, meter: Meter) -> AsyncIterator[None]:
        """Check the limits before each call of a run, and count the turn at its end; without limits, do neither."""
        if not self._limits:
            yield
            return
        self._bind(meter)
        try:
            yield
        finally:
            try:
                await self._spending.settle(meter.turn)
            except StoreError as error:
                log.warning("turn %s: what it has spent is counted later: %s", meter.turn, traced(error))

    @asynccontextmanager
    async def after(self, meter: Meter) -> AsyncIterator[None]:
        """Do the same for calls that are made after a turn has ended. These are counted without limits, too."""
        self._bind(meter)
        try:
            yield
        finally:
            try:
                await self._spending.add(meter)
            except StoreError as error:
                log.warning("turn %s: what it has spent after its end is not counted: %s", meter.turn, traced(error))

    def _bind(self, meter: Meter) -> None:
        async def ask(model: str, tokens: Callable[[], int]) -> None:
            await self.reserve(meter, model, tokens())

        if self._limits:
            meter.ask = ask

    async def near(self, part: float) -> list[Near]:
        """Return the limits of which this fraction, or more, is spent or reserved today (UTC).

        Raises:
            StoreError: the database cannot be read.
        """
        found, today = list[Near](), spending.c.day == day_of(time.time())
        total = sa.func.sum(spending.c.cost)
        async with self._database.read() as connection:
            for kind, limit in asdict(self._limits).items():
                if not limit:
                    continue
                key = sa.literal("") if kind == "all" else spending.c[kind]
                query = (
                    sa.select(key, total).where(today).having(total >= int(limit * part)).order_by(total.desc(), key)
                )
                rows = await connection.execute(query if kind == "all" else query.group_by(key))
                found += [Near(kind, of, int(spent), limit) for of, spent in rows if of or kind != "person"]
        return found

    async def reserve(self, meter: Meter, model: str, tokens: int) -> None:
        """Reserve the expected cost of a model call that reads so many tokens, beside the cost of the turn so far.

        Raises:
            CapError: a limit is reached.
            StoreError: the database cannot be used.
        """
        expected = ModelCall(model, input=tokens, output=EXPECTED)
        async with self._database.write() as connection:
            if not self._database.is_sqlite:
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            await connection.execute(sa.delete(spending).where(spending.c.turn == meter.turn))
            await self._insert(connection, meter, meter.calls)
            refusal = await self._find_reached_limit(connection, meter, model)
            if refusal is None:
                await self._insert(connection, meter, [expected])
        if refusal is not None:
            raise refusal

    async def _insert(self, connection: AsyncConnection, meter: Meter, calls: Sequence[ModelCall]) -> None:
        if rows := ledger_rows(calls, meter.attribution(), self._prices, turn=meter.turn):
            await connection.execute(sa.insert(spending), rows)

    async def _find_reached_limit(self, connection: AsyncConnection, meter: Meter, model: str) -> CapError | None:
        """Return the error of the first limit that is reached; None if there is none."""
        keys = {"person": meter.author, "place": meter.place, "model": model, "all": ""}
        for kind, limit in asdict(self._limits).items():
            if not limit or (kind == "person" and not meter.author):
                continue
            has_key = sa.true() if kind == "all" else spending.c[kind] == keys[kind]
            query = sa.select(sa.func.coalesce(sa.func.sum(spending.c.cost), 0))
            if int((await connection.execute(query.where(spending.c.day == meter.day, has_key))).scalar_one()) >= limit:
                message = f"the spending limit of {dollars(limit)} a day is reached ({kind} {keys[kind]})"
                return _ERRORS[kind](message, cap=dollars(limit))
        return None
