"""Spending limits, which are checked before each model call over all workers."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from bot.monitoring.diagnostics import find_problems
from core.conversations.overview import Overview, QueueOverview
from core.errors import (
    AuthorSpendingLimitError,
    ChannelSpendingLimitError,
    DailySpendingLimitError,
    ModelSpendingLimitError,
    SpendingLimitError,
    StoreError,
    UserSpendingLimitError,
)
from core.inbox.store import InboxStore
from core.store.database import Database
from core.store.schema import spending, workers
from core.turns.store import TurnStore
from core.usage.meter import EXPECTED_OUTPUT_TOKENS, RunningCall, UsageMeter
from core.usage.spending_ledger import SpendingStore
from core.usage.spending_limits import SpendingLimiter, SpendingLimits, SpendingUsage
from tests.core.conftest import FailingDatabase, create_turn_store
from tests.core.usage.test_spending_ledger import CALL, COST, MODEL, OTHER, PRICES, claim_turn, end_turn

#: Slightly less than the cost of a call.
LITTLE = COST - 1


def make_limiter(database: Database, **limits: int) -> SpendingLimiter:
    return SpendingLimiter(database, PRICES, SpendingStore(database, PRICES), SpendingLimits(**limits))


async def count_reservations(database: Database) -> int:
    async with database.read() as connection:
        estimated = sa.select(sa.func.count()).where(spending.c.turn.is_not(None))
        return (await connection.execute(estimated)).scalar_one()


def make_meter(
    turn: str = "t", author: str = "slack:ada", *, place: str = "slack:T:C", day: str = "2026-01-31"
) -> UsageMeter:
    meter = UsageMeter(turn)
    meter.place, meter.day, meter.author = place, day, author
    return meter


@pytest.mark.parametrize(
    ("limits", "asks", "refusal"),
    [
        ({"user": LITTLE}, {}, UserSpendingLimitError),
        ({"user": LITTLE}, {"author": "slack:bob"}, None),
        ({"user": COST + 1}, {}, None),
        ({"channel": LITTLE}, {"author": "slack:bob"}, ChannelSpendingLimitError),
        ({"channel": LITTLE}, {"place": "slack:T:D"}, None),
        ({"model": LITTLE}, {"author": "slack:bob", "place": "slack:T:D"}, ModelSpendingLimitError),
        ({"model": LITTLE}, {"model": OTHER}, None),
        ({"all": LITTLE}, {"author": "slack:bob", "place": "slack:T:D", "model": OTHER}, DailySpendingLimitError),
        ({"all": LITTLE}, {"day": "2026-02-01"}, None),
        ({}, {}, None),
    ],
)
async def test_a_reached_spending_limit_refuses_calls_for_that_day(
    database: FailingDatabase,
    inbox: InboxStore,
    turns: TurnStore,
    limits: dict[str, int],
    asks: dict[str, Any],
    refusal: type[SpendingLimitError] | None,
) -> None:
    turn = await claim_turn(inbox, turns)
    turn.meter.day = "2026-01-31"
    async with make_limiter(database, **limits).limit_run(turn.meter):
        await turn.meter.check_limits(MODEL, lambda: 10)
        await end_turn(turns, turn, CALL)
    if limits:  # the turn is recorded at its end, which frees the reservation
        assert await count_reservations(database) == 0
    asking = make_meter("another")
    for name, value in asks.items():
        setattr(asking, name, value)
    model = asks.get("model", MODEL)
    caps = make_limiter(database, **limits)
    if refusal is None:
        await caps.reserve(asking, model, 10)
    else:
        with pytest.raises(refusal):
            await caps.reserve(asking, model, 10)


async def test_the_next_attempt_takes_over_a_reservation_and_its_end_frees_it(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore
) -> None:
    caps, turn = make_limiter(database, all=COST), await claim_turn(inbox, turns)
    await caps.reserve(turn.meter, MODEL, 10**6)
    turn.meter.add(CALL)  # then the process dies
    with pytest.raises(DailySpendingLimitError):
        await caps.reserve(make_meter("another", day=turn.meter.day), MODEL, 1)
    successor = await create_turn_store(database)
    async with database.write() as connection:
        await connection.execute(sa.delete(workers).where(workers.c.id == turns.worker_id))
    (reclaimed,) = await successor.claim(1)
    assert reclaimed.meter.day == turn.meter.day
    reclaimed.meter.author, reclaimed.meter.place = turn.meter.author, turn.meter.place
    async with caps.limit_run(reclaimed.meter):
        await reclaimed.meter.check_limits(MODEL, lambda: 10)  # its own reservation does not count against the turn
        await successor.end(reclaimed, "failed")
    assert await count_reservations(database) == 0
    await caps.reserve(make_meter("another", day=turn.meter.day), MODEL, 1)


async def test_an_ended_turn_keeps_its_reservation_until_it_is_counted(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore
) -> None:
    caps, turn = make_limiter(database, all=COST), await claim_turn(inbox, turns)
    async with caps.limit_run(turn.meter):
        await turn.meter.check_limits(MODEL, lambda: 10**6)
        await end_turn(turns, turn, CALL)
        database.failures = 1
    assert database.failures == 0
    for _ in range(2):
        with pytest.raises(DailySpendingLimitError):
            await caps.reserve(make_meter("another", day=turn.meter.day), MODEL, 1)
        await SpendingStore(database, PRICES).record_ended_turns()
    assert await count_reservations(database) == 0


async def test_concurrent_workers_pass_a_limit_by_one_call_at_most(
    database_url: str, database: FailingDatabase
) -> None:
    cap, others = 5 * COST, [Database(database_url) for _ in range(4)]

    async def run(nth: int, other: Database) -> None:
        each, caps = make_meter(f"turn {nth}"), make_limiter(other, user=cap)
        with suppress(UserSpendingLimitError):
            while True:
                await caps.reserve(each, MODEL, CALL.input)
                each.add(CALL)

    try:
        await asyncio.gather(*(run(4 * nth + n, other) for nth, other in enumerate(others) for n in range(4)))
    finally:
        for other in others:
            await other.aclose()
    async with database.read() as connection:
        spent = int((await connection.execute(sa.select(sa.func.sum(spending.c.cost)))).scalar_one())
    assert cap <= spent < cap + COST


async def test_calls_beside_each_other_in_one_turn_all_stay_reserved(database: FailingDatabase) -> None:
    caps, run = make_limiter(database, all=100 * COST), make_meter()
    calls = [RunningCall() for _ in range(3)]
    run.running += calls
    await asyncio.gather(*(caps.reserve(run, MODEL, CALL.input, call) for call in calls[:2]))
    assert await count_reservations(database) == 2
    with pytest.raises(DailySpendingLimitError):
        await make_limiter(database, all=COST).reserve(make_meter("another"), MODEL, 1)
    run.running.remove(calls[0])
    run.add(CALL)
    with pytest.raises(DailySpendingLimitError):
        await make_limiter(database, all=COST).reserve(run, MODEL, 1, calls[2])
    assert await count_reservations(database) == 2  # the ended call, and the other running one


async def test_a_growing_answer_ends_once_the_others_have_reached_the_limit(database: FailingDatabase) -> None:
    caps, run, call = make_limiter(database, user=2 * COST), make_meter(), RunningCall()
    run.running.append(call)
    caps._bind_meter(run)
    await run.check_limits(MODEL, lambda: 1, call)
    await run.extend_reservation(call, EXPECTED_OUTPUT_TOKENS)
    assert call.expected_output == EXPECTED_OUTPUT_TOKENS
    await run.extend_reservation(call, 10**9)  # alone, it may exceed the limit by its own cost
    assert (call.expected_output, await count_reservations(database)) == (2 * 10**9, 1)
    with pytest.raises(UserSpendingLimitError):
        await caps.reserve(make_meter("another"), MODEL, 1)
    other = make_meter("before")
    other.add(replace(CALL, input=10 * CALL.input, output=10 * CALL.output))
    with pytest.raises(UserSpendingLimitError):
        await caps.reserve(other, MODEL, 1)
    with pytest.raises(UserSpendingLimitError):
        await run.extend_reservation(call, 3 * 10**9)
    assert await count_reservations(database) == 2  # it stays reserved until the turn ends


async def test_authors_are_found_whose_other_turns_reach_the_limit(database: FailingDatabase) -> None:
    caps, turn = make_limiter(database, user=COST), make_meter("t", "slack:ada")
    caps._bind_meter(turn)
    for name, author in (("t", "slack:ada"), ("other", "slack:bob")):
        run = make_meter(name, author)
        run.add(CALL)
        with suppress(UserSpendingLimitError):
            await caps.reserve(run, MODEL, 1)
    found = await turn.find_spent_authors(["slack:ada", "slack:bob", "slack:eve"])
    assert [(author, type(error)) for author, error in found.items()] == [("slack:bob", AuthorSpendingLimitError)]
    unlimited = make_meter()
    make_limiter(database, all=1)._bind_meter(unlimited)
    assert await unlimited.find_spent_authors(["slack:bob"]) == {}


async def test_with_limits_no_model_is_called_without_the_database(database: FailingDatabase) -> None:
    database.failures = 1
    with pytest.raises(StoreError):
        await make_limiter(database, all=1).reserve(make_meter(), MODEL, 1)


async def test_a_nearly_spent_limit_is_listed_with_reservations(
    database: FailingDatabase, inbox: InboxStore, turns: TurnStore
) -> None:
    await end_turn(turns, await claim_turn(inbox, turns), CALL)
    await SpendingStore(database, PRICES).record_ended_turns()
    caps = make_limiter(database, user=COST, channel=10 * COST, model=COST + 1, all=2 * COST)
    assert await caps.list_nearly_spent(0.8) == [
        SpendingUsage("user", "slack:ada", COST, COST),
        SpendingUsage("model", MODEL, COST, COST + 1),
    ]
    today = f"{time.strftime('%Y-%m-%d', time.gmtime())}"
    row = {"turn": "t", "author": "", "name": "", "model": OTHER, "place": "", "day": today, "cost": COST}
    tokens = dict.fromkeys(("input", "output", "cached", "cache_write", "unpriced"), 0)
    async with database.write() as connection:
        await connection.execute(sa.insert(spending).values(**row, **tokens))
    found = await caps.list_nearly_spent(0.8)
    assert [(near.kind, near.spent) for near in found] == [
        ("user", COST),
        ("model", COST),
        ("model", COST),
        ("all", 2 * COST),
    ]
    empty = Overview(0.0, (), (), QueueOverview(), 0, (), ())
    problems = [
        problem
        for problem in find_problems(empty, holder="1", time_limit=60, platforms=(), limits=found)
        if problem.kind == "spending"
    ]
    assert [(problem.subject, problem.line.partition(":")[0]) for problem in problems] == [
        ("slack:ada", "DAILY_SPENDING_LIMIT_PER_USER_USD is reached"),
        *((model, "DAILY_SPENDING_LIMIT_PER_MODEL_USD is nearly reached") for model in (MODEL, OTHER)),
        ("DAILY_SPENDING_LIMIT_USD", "DAILY_SPENDING_LIMIT_USD is reached"),
    ]
    assert "`parley usage --by user`" in problems[0].remedy
