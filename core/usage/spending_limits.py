"""Caps: what may be spent a day, asked before each call of a model, over all workers.

What a turn has spent, and what its next call is expected to, is reserved before that call; what is reserved counts as
spent. Who finds something left may go on: the one call that takes the last of it may pass the cap by what it costs,
and no other is made behind it. A reservation is the turn's and not the worker's: of a worker that dies, whoever takes
the turn up has it, and when the turn is counted (`core.usage.spending`) it is free.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import CapError, DayCapError, ModelCapError, PersonCapError, PlaceCapError, StoreError
from core.secret_redaction import traced
from core.store.database import Database
from core.store.schema import reservations, spending
from core.usage.meter import Meter, ModelCall, day_of
from core.usage.prices import Prices, dollars
from core.usage.spending import Spending, shared

log = logging.getLogger(__name__)

#: How many tokens a call is expected to write.
EXPECTED = 500

#: PostgreSQL: who asks holds this lock until his answer is written. On SQLite one writes at a time.
_LOCK = 0x6361_7073


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent a day (UTC), in trillionths of a dollar; 0 for as much as one likes."""

    person: int = 0
    place: int = 0
    model: int = 0
    all: int = 0

    def __bool__(self) -> bool:
        return any((self.person, self.place, self.model, self.all))


@dataclass(frozen=True, slots=True)
class Near:
    """A cap of which much is spent.

    Attributes:
        kind: of what it is: `person`, `place`, `model`, or `all`.
        of: of which one; empty of all together.
        spent: today, what is reserved in it, in trillionths of a dollar.
    """

    kind: str
    of: str
    spent: int
    limit: int


class Caps:
    """Sees that no more is spent than may be."""

    def __init__(self, database: Database, prices: Prices, spending: Spending, limits: Limits) -> None:
        self._database = database
        self._prices = prices
        self._spending = spending
        self._limits = limits

    @asynccontextmanager
    async def over(self, meter: Meter) -> AsyncIterator[None]:
        """Have a run ask before each of its calls, and count what it has spent at its end; without a cap, neither."""
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
        """The same of what is asked for a turn when it has ended: that is counted without a cap, too."""
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
        """The caps of which such a part, or more, is spent today (UTC).

        Raises:
            StoreError: the database cannot be read.
        """
        today, found = day_of(time.time()), list[Near]()
        names = ("person", "place", "model", "cost")
        tables = (spending, reservations)
        of_day = (sa.select(*(table.c[name] for name in names)).where(table.c.day == today) for table in tables)
        both = sa.union_all(*of_day).subquery()
        total = sa.func.sum(both.c.cost)
        async with self._database.read() as connection:
            for kind, limit in asdict(self._limits).items():
                if not limit:
                    continue
                key = sa.literal("") if kind == "all" else both.c[kind]
                query = sa.select(key, total).having(total >= int(limit * part)).order_by(total.desc(), key)
                rows = await connection.execute(query if kind == "all" else query.group_by(key))
                found += [Near(kind, of, int(spent), limit) for of, spent in rows if of or kind != "person"]
        return found

    async def reserve(self, meter: Meter, model: str, tokens: int) -> None:
        """Reserve what a run has spent, and what a call of a model is expected to that reads so many tokens.

        Raises:
            CapError: there is nothing left.
            StoreError: it cannot be known what is.
        """
        expected = ModelCall(model, input=tokens, output=EXPECTED)
        async with self._database.write() as connection:
            if not self._database.is_sqlite:
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            await connection.execute(sa.delete(reservations).where(reservations.c.turn == meter.turn))
            refusal = await self._refusal(connection, meter, model)
            # what it has spent is reserved even so, until it is counted
            calls = [*meter.calls, expected] if refusal is None else meter.calls
            rows = [
                {"person": person, "model": asked, "cost": share.cost}
                for person, asked, share in shared(calls, meter.people, self._prices)
            ]
            whose = {"turn": meter.turn, "place": meter.place, "day": meter.day}
            if rows:
                await connection.execute(sa.insert(reservations), [{**whose, **row} for row in rows])
        if refusal is not None:
            raise refusal

    async def _refusal(self, connection: AsyncConnection, meter: Meter, model: str) -> CapError | None:
        """Why a run may not call a model; None if it may.

        Of several who have asked together, one whose own cap is reached keeps no other from an answer: where nothing
        is spent yet, the others have it alone, and what is asked on the way ends when all have reached theirs.
        """
        reached = await self._reached(connection, meter, model)
        done = {cap.of["person"] for cap in reached if "person" in cap.of}
        if left := {person: name for person, name in meter.people.items() if person not in done}:
            meter.people = meter.people if meter.calls else left
            reached = [cap for cap in reached if "person" not in cap.of]
        for cap in reached:
            limit = dollars(cap.limit)
            return cap.error(f"{limit} a day are spent ({cap.of or 'in all'})", cap=limit)
        return None

    async def _reached(self, connection: AsyncConnection, meter: Meter, model: str) -> list["_Cap"]:
        caps = list(self._caps(meter, model))
        if not caps:
            return []
        sums = [_spent(table, meter.day, cap.of) for cap in caps for table in (spending, reservations)]
        found = [int(spent) for spent in (await connection.execute(sa.select(*sums))).one()]
        own = list(shared(meter.calls, meter.people, self._prices))
        mine = [sum(share.cost for person, asked, share in own if cap.holds(person, asked)) for cap in caps]
        return [cap for nth, cap in enumerate(caps) if sum(found[2 * nth : 2 * nth + 2]) + mine[nth] >= cap.limit]

    def _caps(self, meter: Meter, model: str) -> Iterator["_Cap"]:
        """Those that are set."""
        limits = self._limits
        if limits.person:
            yield from (
                _Cap(limits.person, PersonCapError, {"person": person}) for person in sorted(meter.people) if person
            )
        if limits.place:
            yield _Cap(limits.place, PlaceCapError, {"place": meter.place})
        if limits.model:
            yield _Cap(limits.model, ModelCapError, {"model": model})
        if limits.all:
            yield _Cap(limits.all, DayCapError, {})


@dataclass(frozen=True, slots=True)
class _Cap:
    """One of them, as it holds for a run.

    Attributes:
        of: of which person, place or model it is; of all together, nothing.
    """

    limit: int
    error: type[CapError]
    of: Mapping[str, str]

    def holds(self, person: str, model: str) -> bool:
        """Whether what the run has spent for somebody, by a model, counts for it."""
        return self.of.get("person", person) == person and self.of.get("model", model) == model


def _spent(table: sa.Table, day: str, of: Mapping[str, str]) -> sa.ScalarSelect[int]:
    here = [table.c.day == day, *(table.c[name] == value for name, value in of.items())]
    return sa.select(sa.func.coalesce(sa.func.sum(table.c.cost), 0)).where(*here).scalar_subquery()
