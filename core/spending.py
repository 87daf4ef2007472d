"""What was spent, by person, place, model and day: counted when a turn has ended, and kept longer than turns are.

A turn is counted once, whoever comes first: its cost is written in the transaction that adds it up. Nothing is written
for that while it runs; a round looks for the turns that have ended since.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core import metrics
from core.metering import ModelCall, calls_in, day_of
from core.prices import DOLLAR, Prices
from core.secrets import traced
from core.store.database import Database
from core.store.schema import reservations, spending, turns
from core.store.upsert import insert_of

log = logging.getLogger(__name__)

#: How many turns one transaction counts at most.
STEP = 200

#: Seconds between two rounds.
EVERY = 60.0

#: Of all days.
FIRST, LAST = "0001-01-01", "9999-12-31"

By = Literal["person", "place", "model", "day"]

_SUMS = ("calls", "input", "output", "cached", "unpriced", "cost")


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent by one, or in all.

    Attributes:
        key: whose, where, by which model or on which day; empty of all together, and of whom is forgotten.
        name: what a person was last called.
        calls: how many calls of models.
        input: tokens read, those from a cache (`cached`) among them.
        output: tokens written and thought.
        unpriced: how many tokens have no price that is known, and are not in the cost.
        cost: in trillionths of a dollar.
    """

    key: str = ""
    name: str = ""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    unpriced: int = 0
    cost: int = 0


class Spending:
    """The `spending` table.

    Args:
        prices: what models cost when their calls are counted.
    """

    def __init__(self, database: Database, prices: Prices, *, every: float = EVERY) -> None:
        self._database = database
        self._prices = prices
        self._every = every

    async def run(self) -> None:
        """Count what has ended, every now and then, until cancelled."""
        while True:
            try:
                await self.count()
            except Exception as error:
                log.warning("what was spent cannot be counted: %s", traced(error))
            await asyncio.sleep(self._every)

    async def count(self) -> None:
        """Count all turns that have ended. What was reserved for one that was counted before is free.

        Raises:
            StoreError: the database cannot be used.
        """
        counted = STEP
        while counted == STEP:
            async with self._database.write() as connection:
                counted = await count(connection, self._prices)
        ended = reservations.c.turn.not_in(sa.select(turns.c.id).where(turns.c.cost.is_(None)))
        async with self._database.write() as connection:  # of what a tool asked when its turn had ended
            await connection.execute(sa.delete(reservations).where(ended))

    async def settle(self, turn_id: str) -> None:
        """Count a turn, if it has ended.

        Raises:
            StoreError: the database cannot be used.
        """
        async with self._database.write() as connection:
            await count(connection, self._prices, turns.c.id == turn_id)

    async def spent(
        self,
        by: By | None = None,
        *,
        since: str,
        until: str = LAST,
        person: str | None = None,
        place: str | None = None,
    ) -> list[Spent]:
        """What was spent, the most expensive first, or by day; turns that run are not in it yet.

        Args:
            by: for each of these; without, one for all together.
            since: from this day on (`2026-01-31`, UTC).
            until: to this one.
            person: his alone.
            place: at this one alone.

        Raises:
            StoreError: the database cannot be used.
        """
        await self.count()
        sums = [sa.cast(sa.func.coalesce(sa.func.sum(spending.c[name]), 0), sa.Numeric) for name in _SUMS]
        wanted = [spending.c.day >= since, spending.c.day <= until]
        wanted += [spending.c.person == person] if person is not None else []
        wanted += [spending.c.place == place] if place is not None else []
        key = sa.literal("") if by is None else spending.c[by]
        query = sa.select(key.label("key"), *(each.label(name) for name, each in zip(_SUMS, sums, strict=True)))
        query = query.where(*wanted)
        if by is not None:
            query = query.group_by(key).order_by(key if by == "day" else sa.desc("cost"), key)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
            names = await _names(connection, [row.key for row in rows]) if by == "person" else {}
        return [Spent(row.key, names.get(row.key, ""), *(int(getattr(row, name)) for name in _SUMS)) for row in rows]

    async def names(self, people: Collection[str]) -> dict[str, str]:
        """What people were last called, of those that are known.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await _names(connection, people)


async def count(connection: AsyncConnection, prices: Prices, *which: sa.ColumnElement[bool]) -> int:
    """Count turns that have ended, as a part of the caller's transaction; what was reserved for them is free.

    Returns:
        How many there were, at the most `STEP`.
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
    added, costs = dict[tuple[str, str, str, str], list[Any]](), list[dict[str, Any]]()
    for turn in ended:
        usage = turn.usage or {}
        shares = list(shared(calls_in(usage), usage.get("people", {}), prices))
        costs.append({"the_turn": turn.id, "the_cost": sum(share.cost for _, _, share in shares)})
        day, place = str(usage.get("day") or day_of(turn.created_at)), str(usage.get("place", ""))
        for person, model, share in shares:
            metrics.cost.add(share.cost / DOLLAR, {"model": model})
            key = day, person, place, model
            row = added.setdefault(key, ["", *(0 for _ in _SUMS)])
            row[0] = share.name or row[0]
            for nth, name in enumerate(_SUMS, 1):
                row[nth] += getattr(share, name)
    cost = sa.update(turns).where(turns.c.id == sa.bindparam("the_turn")).values(cost=sa.bindparam("the_cost"))
    await connection.execute(cost, costs)
    for key in sorted(added):  # in one order, so that two that count do not wait for each other
        columns = ("day", "person", "place", "model", "name", *_SUMS)
        await _add(connection, dict(zip(columns, (*key, *added[key]), strict=True)))
    await connection.execute(sa.delete(reservations).where(reservations.c.turn.in_([turn.id for turn in ended])))
    return len(ended)


def shared(calls: Sequence[ModelCall], people: Mapping[str, str], prices: Prices) -> Iterator[tuple[str, str, Spent]]:
    """What calls come to, by person and model: what several have asked together is shared out evenly, to the last
    token and to the last trillionth.
    """
    askers = sorted(people) or [""]
    for model in dict.fromkeys(call.model for call in calls):
        sums = dict.fromkeys(_SUMS, 0)
        for call in calls:
            if call.model == model:
                cost, written = prices.cost(call), call.output + call.thinking
                sums["calls"] += 1
                sums["input"] += call.input
                sums["output"] += written
                sums["cached"] += call.cached
                sums["unpriced"] += call.input + written if cost is None else 0
                sums["cost"] += cost or 0
        for nth, person in enumerate(askers):
            parts = {name: _part(total, nth, len(askers)) for name, total in sums.items()}
            yield person, model, Spent(person, people.get(person, ""), **parts)


async def forget(connection: AsyncConnection, person: str) -> None:
    """Keep what a person has spent as nobody's, as a part of the caller's transaction; also of turns that are to be
    counted yet.

    Args:
        person: the platform's id.
    """
    end = f":{person}"
    his = spending.c.person.endswith(end, autoescape=True)
    rows = (await connection.execute(sa.select(spending).where(his).order_by(*spending.primary_key))).all()
    await connection.execute(sa.delete(spending).where(his))
    for row in rows:
        await _add(connection, {**row._mapping, "person": "", "name": ""})
    await connection.execute(sa.delete(reservations).where(reservations.c.person.endswith(end, autoescape=True)))
    named = sa.select(turns.c.id, turns.c.usage).where(sa.cast(turns.c.usage, sa.Text).contains(end, autoescape=True))
    for turn in (await connection.execute(named)).all():
        people = {one: name for one, name in turn.usage.get("people", {}).items() if not one.endswith(end)}
        kept = {**turn.usage, "people": people | ({} if len(people) == len(turn.usage["people"]) else {"": ""})}
        await connection.execute(sa.update(turns).where(turns.c.id == turn.id).values(usage=kept))


def _part(total: int, nth: int, of: int) -> int:
    """The nth of so many parts of a whole, that come to the whole."""
    return total * (nth + 1) // of - total * nth // of


async def _add(connection: AsyncConnection, row: dict[str, Any]) -> None:
    insert = insert_of(connection.dialect.name, spending).values(row)
    sums = {name: spending.c[name] + insert.excluded[name] for name in _SUMS}
    name = sa.case((insert.excluded.name == "", spending.c.name), else_=insert.excluded.name)
    key = list(spending.primary_key)
    await connection.execute(insert.on_conflict_do_update(index_elements=key, set_={**sums, "name": name}))


async def _names(connection: AsyncConnection, people: Collection[str]) -> dict[str, str]:
    named = spending.c.person.in_(people) & (spending.c.name != "")
    query = sa.select(spending.c.person, spending.c.name).where(named).order_by(spending.c.day)
    return {row.person: row.name for row in await connection.execute(query)}
