"""Spending ledger: the table `spending` has one row per model call, with its cost.

Each row names the author and the place of its call. The rows outlive their turns. To record a turn is to insert the
rows of its model calls, and to write their sum to `turns.cost`, in one transaction. The first worker that finds the
turn ended records it. Under spending limits, a running turn has estimated rows, which the record of the turn replaces
(`core.usage.spending_limits`).
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
from core.store.errors import PARSE_ERRORS
from core.store.schema import spending, turns
from core.usage import SpendingDimension
from core.usage.meter import ModelCall, UsageMeter
from core.usage.prices import UNITS_PER_DOLLAR, Prices

log = logging.getLogger(__name__)

#: Maximum number of turns that one transaction records.
BATCH_TURNS = 200

INTERVAL_SECONDS = 60.0

FIRST_DAY, LAST_DAY = "0001-01-01", "9999-12-31"

#: Columns of `spending` by the dimension of a sum.
GROUP_COLUMNS: Mapping[str, sa.ColumnElement[str]] = {
    "user": spending.c.author,
    "channel": spending.c.place,
    "model": spending.c.model,
    "day": spending.c.day,
}

_SUM_COLUMNS = ("input", "output", "cached", "cache_write", "unpriced", "cost")


@dataclass(frozen=True, slots=True)
class SpendingSum:
    """Sum of the spending of a user, in a channel, on a model, on a day, or in total.

    Attributes:
        key: the user (`platform:id`), `InboxMessage.place`, model or day; empty for the total and for deleted users.
        name: last known name of a user; empty for other sums.
        input: includes `cached` and `cache_write`: see `Usage`.
        output: includes thinking.
        unpriced: tokens of models without a known price, which have no cost.
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


class SpendingStore:
    """Store of the spending ledger, the table `spending`; `prices` give a call's cost at its insert."""

    def __init__(self, database: Database, prices: Prices, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._database = database
        self.prices = prices
        self._interval_seconds = interval_seconds

    async def run_recording(self) -> None:
        """Record ended turns every `interval_seconds`, until cancelled; a failure is logged."""
        await run_every(self._interval_seconds, self.record_ended_turns, failure="the spending cannot be counted")

    async def record_ended_turns(self) -> None:
        """Record all ended turns, and delete the estimated rows of recorded or deleted turns."""
        count = BATCH_TURNS
        while count == BATCH_TURNS:
            async with self._database.write() as connection:
                count = await record_batch(connection, self.prices)
        is_unrecorded = sa.exists().where(turns.c.id == spending.c.turn, turns.c.cost.is_(None))
        async with self._database.write() as connection:  # a tool may call a model after its turn has ended
            await connection.execute(sa.delete(spending).where(spending.c.turn.is_not(None), ~is_unrecorded))

    async def record_turn(self, turn_id: str) -> None:
        """Record a turn, unless it is recorded, has not ended, or is unknown."""
        async with self._database.write() as connection:
            await record_batch(connection, self.prices, turns.c.id == turn_id)

    async def add_followup(self, meter: UsageMeter) -> None:
        """Insert the calls of `UsageMeter.followup_meter`, such as a summary, into `spending`.

        If the turn has ended, the calls are added to its usage and cost too. The rows name the author in the turn's
        stored usage; if the turn was deleted, they name none.
        """
        if not (calls := [replace(call, is_summary=True) for call in meter.calls]):
            return
        is_turn = turns.c.id == meter.turn
        async with self._database.write() as connection:
            await record_batch(connection, self.prices, is_turn)
            turn = (await connection.execute(sa.select(turns).where(is_turn).with_for_update())).one_or_none()
            usage = (turn.usage if turn is not None else None) or {}  # a deleted turn has no author
            rows = make_rows(calls, {"day": meter.day, "place": meter.place, **usage}, self.prices)
            if turn is not None and turn.cost is not None:
                sums = {name: usage.get(name, 0) + count for name, count in asdict(meter.usage).items()}
                all_calls = [*usage.get("calls", ()), *(call.to_json() for call in calls)]
                cost = turn.cost + sum(row["cost"] for row in rows)
                values = {"cost": cost, "usage": {**usage, **sums, "calls": all_calls}}
                await connection.execute(sa.update(turns).where(is_turn).values(values))
            await _replace_rows(connection, [meter.turn], rows)

    async def sum_spending(
        self,
        by: SpendingDimension | None = None,
        *,
        since: str,
        until: str = LAST_DAY,
        author: str | None = None,
        place: str | None = None,
    ) -> list[SpendingSum]:
        """Return sums of the spending of ended turns, the most expensive first.

        Sums by day are in the order of the days (UTC). Without `by`, there is always one sum. Ended turns that are not
        in `spending` yet are inserted first. An author is a `platform:id`, a place an `InboxMessage.place`.
        """
        await self.record_ended_turns()
        sums = [
            sa.cast(sa.func.coalesce(sa.func.sum(spending.c[name]), 0), sa.Numeric).label(name) for name in _SUM_COLUMNS
        ]
        key = sa.literal("") if by is None else GROUP_COLUMNS[by]
        query = sa.select(key.label("key"), sa.func.count().label("calls"), *sums)
        query = query.where(spending.c.turn.is_(None), spending.c.day >= since, spending.c.day <= until)
        if author is not None:
            query = query.where(spending.c.author == author)
        if place is not None:
            query = query.where(spending.c.place == place)
        if by is not None:
            query = query.group_by(key).order_by(key if by == "day" else sa.desc("cost"), key)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.select_from(spending))).all()
            names = await get_latest_names(connection, [row.key for row in rows]) if by == "user" else {}
        return [
            SpendingSum(row.key, names.get(row.key, ""), row.calls, *(int(getattr(row, name)) for name in _SUM_COLUMNS))
            for row in rows
        ]

    async def get_latest_names(self, persons: Collection[str]) -> dict[str, str]:
        """Return the last known names of people, by `platform:id`; people without one are left out."""
        async with self._database.read() as connection:
            return await get_latest_names(connection, persons)


async def record_batch(connection: AsyncConnection, prices: Prices, *conditions: sa.ColumnElement[bool]) -> int:
    """Record ended turns, those that ended first; return their number, at most `BATCH_TURNS`.

    It is done in the caller's transaction. A call of a model without a price counts as cost 0, and its tokens are in
    the column `unpriced`. On PostgreSQL, turns that another transaction has locked are skipped.

    Args:
        conditions: SQL conditions on `turns` for the turns to record; none for all.
    """
    query = (
        sa.select(turns.c.id, turns.c.usage, turns.c.created_at)
        .where(turns.c.finished_at.is_not(None), turns.c.cost.is_(None), *conditions)
        .order_by(turns.c.finished_at)
        .limit(BATCH_TURNS)
        .with_for_update(skip_locked=True)
    )
    ended = (await connection.execute(query)).all()
    if not ended:
        return 0
    rows = list[dict[str, Any]]()
    costs = list[dict[str, Any]]()
    for turn in ended:
        calls = _make_turn_rows(turn.id, turn.usage, turn.created_at, prices)
        costs.append({"turn_id": turn.id, "turn_cost": sum(call["cost"] for call in calls)})
        rows += calls
    cost = sa.update(turns).where(turns.c.id == sa.bindparam("turn_id")).values(cost=sa.bindparam("turn_cost"))
    await connection.execute(cost, costs)
    await _replace_rows(connection, [turn.id for turn in ended], rows)
    return len(ended)


def make_rows(
    calls: Iterable[ModelCall], usage: Mapping[str, Any], prices: Prices, *, turn: str | None = None
) -> list[dict[str, Any]]:
    """Return one row for the table `spending` per model call, with its cost.

    `usage` has the keys of `UsageMeter.to_attribution`. `turn` is the running turn of estimated rows; final rows have
    none.
    """
    of_turn = {
        "turn": turn,
        "day": usage["day"],
        "author": usage.get("author", ""),
        "name": usage.get("author_name", ""),
        "place": usage.get("place", ""),
    }
    rows = list[dict[str, Any]]()
    for call in calls:
        cost, unpriced = prices.total_cost([call])
        tokens = {name: getattr(call, name) for name in ("input", "cached", "cache_write")}
        output = call.output + call.thinking
        rows.append({**of_turn, "model": call.model, **tokens, "output": output, "unpriced": unpriced, "cost": cost})
    return rows


async def record_turns(connection: AsyncConnection, prices: Prices, *conditions: sa.ColumnElement[bool]) -> None:
    """Record all matching ended turns: see `record_batch`.

    Call it before the turns are deleted, in the same transaction.
    """
    while await record_batch(connection, prices, *conditions) == BATCH_TURNS:
        pass


async def redact_person(connection: AsyncConnection, prices: Prices, person_id: str) -> None:
    """Remove a person from `spending` and from the usage of turns; the sums stay.

    Ended turns of the person are recorded first. The person's ids and names, and the place of their direct messages,
    become "". All is done in the caller's transaction.
    """
    named = sa.cast(turns.c.usage, sa.Text).contains(person_id, autoescape=True)
    await record_turns(connection, prices, named)
    for id_, usage in (await connection.execute(sa.select(turns.c.id, turns.c.usage).where(named))).all():
        author = {"author": "", "author_name": ""} if text_has_person_id(usage.get("author", ""), person_id) else {}
        place = {"place": ""} if text_has_person_id(usage.get("place", ""), person_id) else {}
        await connection.execute(sa.update(turns).where(turns.c.id == id_).values(usage={**usage, **author, **place}))
    await redact_rows(connection, has_person_id(spending.c.author, person_id))
    await connection.execute(sa.update(spending).where(has_person_id(spending.c.place, person_id)).values(place=""))


async def redact_rows(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> None:
    """Set `author` and `name` to "" in the rows of `spending` that match a condition."""
    await connection.execute(sa.update(spending).where(condition).values(author="", name=""))


async def get_latest_names(connection: AsyncConnection, persons: Collection[str]) -> dict[str, str]:
    """Return the newest name in `spending` of each person that has one, by `platform:id`."""
    named = spending.c.author.in_(persons) & (spending.c.name != "")
    query = sa.select(spending.c.author, spending.c.name).where(named).group_by(spending.c.author, spending.c.name)
    newest_last = query.order_by(sa.func.max(spending.c.id))
    return {row.author: row.name for row in await connection.execute(newest_last)}


def has_person_id(column: sa.ColumnElement[str], person_id: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a column is a person's id or ends in `:ID`."""
    return (column == person_id) | column.endswith(f":{person_id}", autoescape=True)


def text_has_person_id(text: str, person_id: str) -> bool:
    """Return whether a text is a person's id or ends in `:ID`, such as `slack:U1`."""
    return text == person_id or text.endswith(f":{person_id}")


def _make_turn_rows(turn_id: str, usage: Any, started_at: float, prices: Prices) -> list[dict[str, Any]]:
    try:
        meter = UsageMeter(turn_id, usage, started_at=started_at)
        return make_rows(meter.calls, {"day": meter.day, **(usage or {})}, prices)
    except PARSE_ERRORS:
        log.error("the usage of turn %s is unreadable and counts as zero", turn_id)
        return []


async def _replace_rows(connection: AsyncConnection, turn_ids: Collection[str], rows: list[dict[str, Any]]) -> None:
    """Delete the estimated rows of turns in `spending`, and insert the final ones."""
    await connection.execute(sa.delete(spending).where(spending.c.turn.in_(turn_ids)))
    if rows:
        await connection.execute(sa.insert(spending), rows)
        for row in rows:
            metrics.cost.add(row["cost"] / UNITS_PER_DOLLAR, {"model": row["model"]})
