"""Spending ledger by person, place, model and day; it outlives the turns.

A turn is counted once, by the first worker that finds it ended: its cost is written in the transaction that adds it to
the sums. Nothing is written while the turn runs.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.observability import metrics
from core.secret_redaction import traced
from core.store.database import Database
from core.store.errors import Unreadable
from core.store.schema import reservations, spending, turns
from core.store.upsert import insert_of
from core.usage import By
from core.usage.meter import Meter, ModelCall, calls_in
from core.usage.prices import DOLLAR, Prices

log = logging.getLogger(__name__)

#: How many turns one transaction counts at most.
STEP = 200

#: Seconds between two rounds.
EVERY = 60.0

#: Of all days.
FIRST, LAST = "0001-01-01", "9999-12-31"


_SUMS = ("calls", "input", "output", "cached", "cache_write", "unpriced", "cost")

#: What is to be added to a row, by its key: a name and the sums.
_Added = dict[tuple[str, str, str, str], list[Any]]


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent by one, or in all.

    Attributes:
        key: whose, where, by which model or on which day; empty of all together, and of whom is forgotten.
        name: what a person was last called.
        calls: how many calls of models.
        input: tokens read, those from a cache (`cached`) and those written to one (`cache_write`) among them.
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
    cache_write: int = 0
    unpriced: int = 0
    cost: int = 0


class Spending:
    """The `spending` table.

    Args:
        prices: what models cost when their calls are counted.

    Attributes:
        prices: the same.
    """

    def __init__(self, database: Database, prices: Prices, *, every: float = EVERY) -> None:
        self._database = database
        self.prices = prices
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
                counted = await count(connection, self.prices)
        ended = reservations.c.turn.not_in(sa.select(turns.c.id).where(turns.c.cost.is_(None)))
        async with self._database.write() as connection:  # of what a tool asked when its turn had ended
            await connection.execute(sa.delete(reservations).where(ended))

    async def settle(self, turn_id: str) -> None:
        """Count a turn, if it has ended.

        Raises:
            StoreError: the database cannot be used.
        """
        async with self._database.write() as connection:
            await count(connection, self.prices, turns.c.id == turn_id)

    async def add(self, meter: Meter) -> None:
        """Count what was asked for a turn when it had ended, as a summary is: it is told and shared out with the rest.

        Raises:
            StoreError: the database cannot be used.
        """
        if not (calls := [replace(call, is_summary=True) for call in meter.calls]):
            return
        this = turns.c.id == meter.turn
        async with self._database.write() as connection:
            await count(connection, self.prices, this)
            turn = (await connection.execute(sa.select(turns).where(this).with_for_update())).one_or_none()
            usage = (turn.usage if turn is not None else None) or {"place": meter.place}  # of whom is forgotten, nobody
            added = _Added()
            cost = _share_out(added, usage, calls, self.prices, meter.day)
            await _enter(connection, added)
            if turn is not None and turn.cost is not None:
                sums = {name: usage.get(name, 0) + count for name, count in asdict(meter.usage).items()}
                told = [*usage.get("calls", ()), *(call.to_json() for call in calls)]
                left = {"cost": turn.cost + cost, "usage": {**usage, **sums, "calls": told}}
                await connection.execute(sa.update(turns).where(this).values(left))
            await connection.execute(sa.delete(reservations).where(reservations.c.turn == meter.turn))

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
    added, costs = _Added(), list[dict[str, Any]]()
    for turn in ended:
        usage, day = _told(turn.id, turn.usage or {}, turn.created_at)
        costs.append({"the_turn": turn.id, "the_cost": _share_out(added, usage, calls_in(usage), prices, day)})
    cost = sa.update(turns).where(turns.c.id == sa.bindparam("the_turn")).values(cost=sa.bindparam("the_cost"))
    await connection.execute(cost, costs)
    await _enter(connection, added)
    await connection.execute(sa.delete(reservations).where(reservations.c.turn.in_([turn.id for turn in ended])))
    return len(ended)


def _told(turn_id: str, usage: Mapping[str, Any], begun_at: float) -> tuple[Mapping[str, Any], str]:
    """What a turn has used, and on which day. What cannot be read counts as nothing: it must not keep the others from
    being counted.
    """
    try:
        meter = Meter(turn_id, usage, begun_at=begun_at)
        if min(asdict(meter.usage).values()) < 0:
            raise ValueError("less than nothing")
        return usage, str(usage.get("day") or meter.day)
    except Unreadable:
        log.error("what turn %s has used cannot be read: it counts as nothing", turn_id)
        return {}, ""


def _share_out(added: _Added, usage: Mapping[str, Any], calls: Sequence[ModelCall], prices: Prices, day: str) -> int:
    """Add what calls come to, for those who have asked; their cost.

    Args:
        usage: says who that is, and where (`Meter.to_json`).
    """
    cost, place = 0, str(usage.get("place", ""))
    for person, model, share in shared(calls, usage.get("people", {}), prices):
        row = added.setdefault((day, person, place, model), ["", *(0 for _ in _SUMS)])
        row[0] = share.name or row[0]
        for nth, name in enumerate(_SUMS, 1):
            row[nth] += getattr(share, name)
        metrics.cost.add(share.cost / DOLLAR, {"model": model})
        cost += share.cost
    return cost


async def _enter(connection: AsyncConnection, added: _Added) -> None:
    for key in sorted(added):  # in one order, so that two that count do not wait for each other
        columns = ("day", "person", "place", "model", "name", *_SUMS)
        await _add(connection, dict(zip(columns, (*key, *added[key]), strict=True)))


def shared(calls: Sequence[ModelCall], people: Mapping[str, str], prices: Prices) -> Iterator[tuple[str, str, Spent]]:
    """What calls come to, by person and model: what several have asked together is shared out evenly, to the last
    token and to the last trillionth.
    """
    askers = sorted(people) or [""]
    for model in dict.fromkeys(call.model for call in calls):
        sums = dict.fromkeys(_SUMS, 0)
        for call in calls:
            if call.model == model:
                cost, unpriced = prices.bill([call])
                sums["calls"] += 1
                sums["input"] += call.input
                sums["output"] += call.output + call.thinking
                sums["cached"] += call.cached
                sums["cache_write"] += call.cache_write
                sums["unpriced"] += unpriced
                sums["cost"] += cost
        for nth, person in enumerate(askers):
            parts = {name: _part(total, nth, len(askers)) for name, total in sums.items()}
            yield person, model, Spent(person, people.get(person, ""), **parts)


async def count_all(connection: AsyncConnection, prices: Prices, *which: sa.ColumnElement[bool]) -> None:
    """Count all of these turns that have ended, before they are deleted in the caller's transaction."""
    while await count(connection, prices, *which) == STEP:
        pass


async def forget_person(connection: AsyncConnection, prices: Prices, person: str) -> None:
    """Keep what somebody has spent as nobody's, as a part of the caller's transaction: what is counted, and what a turn
    still has to tell. What was asked at a place that is his alone is of no place then.

    Args:
        person: the id that his platform has for him.
    """
    tells = sa.cast(turns.c.usage, sa.Text).contains(person, autoescape=True)
    await count_all(connection, prices, tells)
    for id_, usage in (await connection.execute(sa.select(turns.c.id, turns.c.usage).where(tells))).all():
        people = {("" if ends_in(key, person) else key): name for key, name in usage.get("people", {}).items()}
        where = "" if ends_in(usage.get("place", ""), person) else usage.get("place", "")
        left = {**usage, "people": people | ({"": ""} if "" in people else {}), "place": where}
        await connection.execute(sa.update(turns).where(turns.c.id == id_).values(usage=left))
    await _moved(connection, is_of(spending.c.person, person), person="", name="")
    await _moved(connection, is_of(spending.c.place, person), place="")
    his = is_of(reservations.c.person, person) | is_of(reservations.c.place, person)
    await connection.execute(sa.delete(reservations).where(his))


async def forget_people(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> None:
    """Keep these rows of `spending` as nobody's, as a part of the caller's transaction."""
    await _moved(connection, which & (spending.c.person != ""), person="", name="")


def is_of(column: sa.ColumnElement[str], person: str) -> sa.ColumnElement[bool]:
    """Whether a column has somebody's id, by itself or as the last part of what it has."""
    return (column == person) | column.endswith(f":{person}", autoescape=True)


def ends_in(text: str, person: str) -> bool:
    """The same of a text."""
    return text == person or text.endswith(f":{person}")


async def _moved(connection: AsyncConnection, which: sa.ColumnElement[bool], **to: str) -> None:
    """Give rows of `spending` other keys: what has the same key then is added up."""
    taken = await connection.execute(sa.delete(spending).where(which).returning(*spending.c))
    for row in sorted(taken.mappings().all(), key=lambda row: [row[column.name] for column in spending.primary_key]):
        await _add(connection, {**row, **to})


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
