"""Spending ledger: one row per model call, with its author, place and cost. It outlives the turns.

The calls of a turn are entered once, by the first worker that finds the turn ended, in the transaction that writes the
cost of the turn. Under spending limits a running turn has provisional rows (`core.usage.spending_limits`).
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every
from core.observability import metrics
from core.store.database import Database
from core.store.errors import Unreadable
from core.store.schema import spending, turns
from core.usage import By
from core.usage.meter import Meter, ModelCall
from core.usage.prices import DOLLAR, Prices

log = logging.getLogger(__name__)

#: How many turns one transaction counts at most.
STEP = 200

#: Seconds between two rounds.
EVERY = 60.0

#: Of all days.
FIRST, LAST = "0001-01-01", "9999-12-31"

_SUMS = ("input", "output", "cached", "cache_write", "unpriced", "cost")


@dataclass(frozen=True, slots=True)
class Spent:
    """The sums of a person, a place, a model or a day, or of all.

    Attributes:
        key: the person, place, model or day; empty for all together, and for people who were deleted.
        name: the last known name of a person.
        calls: model calls.
        input: tokens read, `cached` and `cache_write` among them.
        output: tokens written and thought.
        unpriced: tokens of models without a known price; they are not in the cost.
        cost: in trillionths of a dollar.
    """

    key: str = ""
    name: str = ""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    unpriced: int = 0
    cost: int = 0


class Spending:
    """The `spending` table.

    Args:
        prices: prices of the model calls that are counted from now on.

    Attributes:
        prices: the same.
    """

    def __init__(self, database: Database, prices: Prices, *, every: float = EVERY) -> None:
        self._database = database
        self.prices = prices
        self._every = every

    async def run(self) -> None:
        """Count the turns that have ended, every `every` seconds, until cancelled."""
        await run_every(self._every, self.count, what="the spending cannot be counted")

    async def count(self) -> None:
        """Count all turns that have ended, and delete the provisional rows of turns that are counted or gone.

        Raises:
            StoreError: the database cannot be used.
        """
        counted = STEP
        while counted == STEP:
            async with self._database.write() as connection:
                counted = await count(connection, self.prices)
        uncounted = sa.exists().where(turns.c.id == spending.c.turn, turns.c.cost.is_(None))
        async with self._database.write() as connection:  # a tool may call a model after its turn has ended
            await connection.execute(sa.delete(spending).where(spending.c.turn.is_not(None), ~uncounted))

    async def settle(self, turn_id: str) -> None:
        """Count a turn, if it has ended.

        Raises:
            StoreError: the database cannot be used.
        """
        async with self._database.write() as connection:
            await count(connection, self.prices, turns.c.id == turn_id)

    async def add(self, meter: Meter) -> None:
        """Enter the calls that were made for a turn after its end, such as a summary's, and add them to the turn.

        Raises:
            StoreError: the database cannot be used.
        """
        if not (calls := [replace(call, is_summary=True) for call in meter.calls]):
            return
        this = turns.c.id == meter.turn
        async with self._database.write() as connection:
            await count(connection, self.prices, this)
            turn = (await connection.execute(sa.select(turns).where(this).with_for_update())).one_or_none()
            usage = (turn.usage if turn is not None else None) or {}  # a deleted turn has no author
            rows = ledger_rows(calls, {"day": meter.day, "place": meter.place, **usage}, self.prices)
            if turn is not None and turn.cost is not None:
                sums = {name: usage.get(name, 0) + count for name, count in asdict(meter.usage).items()}
                all_calls = [*usage.get("calls", ()), *(call.to_json() for call in calls)]
                cost = turn.cost + sum(row["cost"] for row in rows)
                values = {"cost": cost, "usage": {**usage, **sums, "calls": all_calls}}
                await connection.execute(sa.update(turns).where(this).values(values))
            await _enter(connection, [meter.turn], rows)

    async def spent(
        self,
        by: By | None = None,
        *,
        since: str,
        until: str = LAST,
        person: str | None = None,
        place: str | None = None,
    ) -> list[Spent]:
        """Return the sums of the turns that have ended, the most expensive first, or by day.

        Args:
            by: the dimension; None for one sum of all.
            since: the first day (`2026-01-31`, UTC).
            until: the last day.
            person: of this author alone.
            place: of this place alone.

        Raises:
            StoreError: the database cannot be used.
        """
        await self.count()
        sums = [sa.cast(sa.func.coalesce(sa.func.sum(spending.c[name]), 0), sa.Numeric).label(name) for name in _SUMS]
        key = sa.literal("") if by is None else spending.c[by]
        query = sa.select(key.label("key"), sa.func.count().label("calls"), *sums)
        query = query.where(spending.c.turn.is_(None), spending.c.day >= since, spending.c.day <= until)
        if person is not None:
            query = query.where(spending.c.person == person)
        if place is not None:
            query = query.where(spending.c.place == place)
        if by is not None:
            query = query.group_by(key).order_by(key if by == "day" else sa.desc("cost"), key)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.select_from(spending))).all()
            names = await last_names(connection, [row.key for row in rows]) if by == "person" else {}
        return [
            Spent(row.key, names.get(row.key, ""), row.calls, *(int(getattr(row, name)) for name in _SUMS))
            for row in rows
        ]

    async def names(self, people: Collection[str]) -> dict[str, str]:
        """Return the last known names of people.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await last_names(connection, people)


async def count(connection: AsyncConnection, prices: Prices, *which: sa.ColumnElement[bool]) -> int:
    """Enter the calls of turns that have ended, as a part of the caller's transaction.

    Returns:
        How many turns there were, at most `STEP`.
    """
    query = (
        sa.select(turns.c.id, turns.c.usage, turns.c.created_at)
        .where(turns.c.finished_at.is_not(None), turns.c.cost.is_(None), *which)
        .order_by(turns.c.finished_at)
        .limit(STEP)
        .with_for_update(skip_locked=True)
    )
    ended = (await connection.execute(query)).all()
    if not ended:
        return 0
    rows, costs = list[dict[str, Any]](), list[dict[str, Any]]()
    for turn in ended:
        calls = _rows_of_turn(turn.id, turn.usage, turn.created_at, prices)
        costs.append({"the_turn": turn.id, "the_cost": sum(call["cost"] for call in calls)})
        rows += calls
    cost = sa.update(turns).where(turns.c.id == sa.bindparam("the_turn")).values(cost=sa.bindparam("the_cost"))
    await connection.execute(cost, costs)
    await _enter(connection, [turn.id for turn in ended], rows)
    return len(ended)


def ledger_rows(
    calls: Iterable[ModelCall], usage: Mapping[str, Any], prices: Prices, *, turn: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of model calls.

    Args:
        usage: has the day, the place and the author (`Meter.attribution`).
        turn: the running turn, if the rows are provisional.
    """
    of_turn = {
        "turn": turn,
        "day": usage["day"],
        "person": usage.get("author", ""),
        "name": usage.get("author_name", ""),
        "place": usage.get("place", ""),
    }
    rows = list[dict[str, Any]]()
    for call in calls:
        cost, unpriced = prices.bill([call])
        tokens = {name: getattr(call, name) for name in ("input", "cached", "cache_write")}
        output = call.output + call.thinking
        rows.append({**of_turn, "model": call.model, **tokens, "output": output, "unpriced": unpriced, "cost": cost})
    return rows


async def count_all(connection: AsyncConnection, prices: Prices, *which: sa.ColumnElement[bool]) -> None:
    """Count all of these turns that have ended, before they are deleted in the caller's transaction."""
    while await count(connection, prices, *which) == STEP:
        pass


async def forget_person(connection: AsyncConnection, prices: Prices, person: str) -> None:
    """Remove a person from the ledger and from the usage of turns, as a part of the caller's transaction. The sums
    stay. A place that is that person's alone, such as their DM, is removed as well.

    Args:
        person: the platform's id of the person.
    """
    named = sa.cast(turns.c.usage, sa.Text).contains(person, autoescape=True)
    await count_all(connection, prices, named)
    for id_, usage in (await connection.execute(sa.select(turns.c.id, turns.c.usage).where(named))).all():
        author = {"author": "", "author_name": ""} if ends_in(usage.get("author", ""), person) else {}
        place = {"place": ""} if ends_in(usage.get("place", ""), person) else {}
        await connection.execute(sa.update(turns).where(turns.c.id == id_).values(usage={**usage, **author, **place}))
    await forget_people(connection, is_of(spending.c.person, person))
    await connection.execute(sa.update(spending).where(is_of(spending.c.place, person)).values(place=""))


async def forget_people(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> None:
    """Remove the people from these rows of `spending`, as a part of the caller's transaction."""
    await connection.execute(sa.update(spending).where(which).values(person="", name=""))


async def last_names(connection: AsyncConnection, people: Collection[str]) -> dict[str, str]:
    """Return the last known names of people that the ledger has."""
    named = spending.c.person.in_(people) & (spending.c.name != "")
    query = sa.select(spending.c.person, spending.c.name).where(named).group_by(spending.c.person, spending.c.name)
    newest_last = query.order_by(sa.func.max(spending.c.id))
    return {row.person: row.name for row in await connection.execute(newest_last)}


def is_of(column: sa.ColumnElement[str], person: str) -> sa.ColumnElement[bool]:
    """Return whether a column has a person's id, by itself or as the last part of its value."""
    return (column == person) | column.endswith(f":{person}", autoescape=True)


def ends_in(text: str, person: str) -> bool:
    """Return the same of a text."""
    return text == person or text.endswith(f":{person}")


def _rows_of_turn(turn_id: str, usage: Any, begun_at: float, prices: Prices) -> list[dict[str, Any]]:
    """Return the rows of a turn. A turn whose usage cannot be read has none, and keeps no other from being counted."""
    try:
        meter = Meter(turn_id, usage, begun_at=begun_at)
        return ledger_rows(meter.calls, {"day": meter.day, **(usage or {})}, prices)
    except Unreadable:
        log.error("what turn %s has used cannot be read: it counts as nothing", turn_id)
        return []


async def _enter(connection: AsyncConnection, turn_ids: Collection[str], rows: list[dict[str, Any]]) -> None:
    """Insert rows in place of the provisional rows of these turns."""
    await connection.execute(sa.delete(spending).where(spending.c.turn.in_(turn_ids)))
    if rows:
        await connection.execute(sa.insert(spending), rows)
        for row in rows:
            metrics.cost.add(row["cost"] / DOLLAR, {"model": row["model"]})
