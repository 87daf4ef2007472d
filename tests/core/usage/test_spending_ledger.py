"""Spending ledger: each model call is counted once, for the newest author.

Its rows outlive the turn.
"""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from core.inbox.store import InboxStore
from core.observability import metrics
from core.privacy.retention import CleanupService
from core.store.schema import spending
from core.store.schema import turns as turns_table
from core.store.turn_states import EndState
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.usage import SpendingDimension
from core.usage.meter import ModelCall, UsageMeter
from core.usage.prices import UNITS_PER_DOLLAR, Prices
from core.usage.spending_ledger import FIRST_DAY, SpendingStore, SpendingSum, make_rows, redact_person
from tests.core.conftest import FailingDatabase, create_turn_store
from tests.fixtures.inbox_messages import inbound

PRICES = Prices()
MODEL, OTHER, UNKNOWN = "gemini-2.5-flash", "openai/gpt-5", "openai/of-my-own"
CALL = ModelCall(MODEL, input=1001, output=7, thinking=2, cached=13, cache_write=17)
COST = PRICES.get_cost(CALL) or 0
SUMS = ("calls", "input", "output", "cached", "cache_write", "unpriced", "cost")


@pytest.fixture
def books(database: FailingDatabase) -> SpendingStore:
    return SpendingStore(database, PRICES)


async def claim_turn(inbox: InboxStore, turns: TurnStore, *authors: str, place: str = "slack:T:C") -> Turn:
    """Accept a message of each author, and return the claimed turn that answers all."""
    for author in authors or ("ada",):
        await inbox.accept(inbound(session=f"{place}:1", place=place, author=author))
    (turn,) = await turns.claim(1)
    turn.meter.place = place
    newest = turn.newest_message.author
    turn.meter.author, turn.meter.author_name = f"slack:{newest}", newest.title()
    return turn


async def end_turn(turns: TurnStore, turn: Turn, *calls: ModelCall, state: EndState = "done") -> None:
    for call in calls:
        turn.meter.add(call)
    if state == "done":
        await turns.save_answer(turn, "the answer", turn.meter.to_json())
    await turns.end(turn, state)


def to_rows(spent: list[SpendingSum]) -> list[tuple[Any, ...]]:
    return [(each.key, each.name, each.calls, each.input, each.output, each.cached, each.cost) for each in spent]


async def test_a_turn_is_counted_by_person_place_model_and_day_and_once(
    inbox: InboxStore,
    turns: TurnStore,
    database: FailingDatabase,
    books: SpendingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metered = Counter[str]()
    monkeypatch.setattr(
        metrics.cost, "add", lambda dollars, by: metered.update({by["model"]: dollars * UNITS_PER_DOLLAR})
    )
    dear = ModelCall(OTHER, input=10_000, output=1)
    await end_turn(turns, await claim_turn(inbox, turns), CALL, dear)
    await end_turn(turns, await claim_turn(inbox, turns, "bob", place="slack:T:D"), CALL, ModelCall(UNKNOWN, 5, 6))
    others = [SpendingStore(database, PRICES) for _ in range(4)]
    await asyncio.gather(*(other.record_ended_turns() for other in others))  # several processes count at the same time
    cost, today = PRICES.get_cost(dear) or 0, f"{time.strftime('%Y-%m-%d', time.gmtime())}"
    assert to_rows(await books.sum_spending(since=today)) == [("", "", 4, 12_007, 25, 26, 2 * COST + cost)]
    assert metered == pytest.approx({MODEL: 2 * COST, OTHER: cost, UNKNOWN: 0})
    assert to_rows(await books.sum_spending("user", since=today)) == [
        ("slack:ada", "Ada", 2, 11_001, 10, 13, COST + cost),
        ("slack:bob", "Bob", 2, 1_006, 15, 13, COST),
    ]
    assert [each.key for each in await books.sum_spending("model", since=today)] == [OTHER, MODEL, UNKNOWN]
    assert [(each.key, each.cost) for each in await books.sum_spending("channel", since=today)] == [
        ("slack:T:C", COST + cost),
        ("slack:T:D", COST),
    ]
    (of_bob,) = await books.sum_spending(since=today, author="slack:bob", place="slack:T:D")
    assert (of_bob.unpriced, of_bob.cost) == (11, COST)
    assert [each.key for each in await books.sum_spending("day", since=FIRST_DAY)] == [today]
    assert (await books.sum_spending(since="2999-01-01")) == [SpendingSum()]
    async with database.read() as connection:
        costs = (await connection.execute(sa.select(turns_table.c.cost).order_by(turns_table.c.created_at))).scalars()
        assert list(costs) == [COST + cost, COST]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_failed_turn_is_counted(
    inbox: InboxStore, turns: TurnStore, books: SpendingStore, state: EndState
) -> None:
    turn = await claim_turn(inbox, turns)
    await end_turn(turns, turn, CALL, state=state)
    assert (await books.sum_spending(since=FIRST_DAY))[0].cost == COST
    if state == "cancelled":
        return
    await inbox.request_rerun(turn.id, author="ada", kind="retry")  # the retry counts its own calls only
    (reclaimed,) = await turns.claim(1)
    reclaimed.meter.author = turn.meter.author
    await end_turn(turns, reclaimed, CALL)
    assert (await books.sum_spending(since=FIRST_DAY))[0].cost == 2 * COST


async def test_all_attempts_of_a_returned_or_reset_turn_are_counted(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, books: SpendingStore
) -> None:
    turn = await claim_turn(inbox, turns)
    turn.meter.add(CALL)
    await turns.hand_back(turn)
    (reclaimed,) = await (await create_turn_store(database)).claim(1)
    assert reclaimed.meter.calls == (CALL,)
    reclaimed.meter.add(CALL)
    await inbox.reset_session(inbound(session=turn.session_id, author="ada", text="reset"))
    assert (await books.sum_spending(since=FIRST_DAY))[0].calls == 0  # a running turn is not recorded
    other = await create_turn_store(database)
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(owner=other.worker_id))
    await other.end(reclaimed, "cancelled")
    assert (await books.sum_spending("user", since=FIRST_DAY)) == [
        SpendingSum(
            "slack:ada", "Ada", 2, 2 * CALL.input, 2 * (CALL.output + CALL.thinking), 2 * 13, 2 * 17, 0, 2 * COST
        )
    ]


async def test_the_sums_of_each_dimension_add_up_to_the_total(
    inbox: InboxStore, turns: TurnStore, books: SpendingStore
) -> None:
    for nth, authors in enumerate([("ada",), ("ada", "bob"), ("cy",), ("bob", "ada")]):
        turn = await claim_turn(inbox, turns, *authors, place=f"slack:T:{nth % 3}")
        await end_turn(turns, turn, CALL, ModelCall(OTHER, input=nth, output=1), ModelCall(UNKNOWN, nth))
    (total,) = await books.sum_spending(since=FIRST_DAY)
    dimensions: list[SpendingDimension] = ["user", "channel", "model", "day"]
    for by in dimensions:
        parts = await books.sum_spending(by, since=FIRST_DAY)
        sums = SpendingSum(**{name: sum(getattr(part, name) for part in parts) for name in SUMS})
        assert sums == total


async def test_a_turn_counts_on_the_day_on_which_it_began(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, books: SpendingStore
) -> None:
    turn = await claim_turn(inbox, turns)
    turn.meter.day = "2026-01-31"
    await end_turn(turns, turn, CALL)
    assert [(each.key, each.cost) for each in await books.sum_spending("day", since=FIRST_DAY)] == [
        ("2026-01-31", COST)
    ]
    assert UsageMeter("t", started_at=1_769_903_999.9).day == "2026-01-31"
    assert UsageMeter("t", started_at=1_769_904_000.0).day == "2026-02-01"


async def test_turns_are_counted_before_their_deletion(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, books: SpendingStore
) -> None:
    await end_turn(turns, await claim_turn(inbox, turns), CALL)
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(finished_at=1.0))
    pruning = CleanupService(database, days=30)
    assert await pruning.delete_batch() == 0
    await books.record_ended_turns()
    assert await pruning.delete_batch() == 1
    assert (await books.sum_spending(since=FIRST_DAY))[0].cost == COST


async def test_a_redacted_person_has_no_name_and_the_sums_stay(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, books: SpendingStore
) -> None:
    for author in ("ada", "bob"):
        await end_turn(turns, await claim_turn(inbox, turns, author), CALL)
    before = await books.sum_spending(since=FIRST_DAY)
    await end_turn(turns, await claim_turn(inbox, turns, "ada", "bob"), CALL)  # this turn is not recorded yet
    for author in ("ada", "bob"):
        async with database.write() as connection:
            await redact_person(connection, PRICES, author)
    async with database.read() as connection:
        usages = (await connection.execute(sa.select(turns_table.c.usage))).scalars().all()
    assert [(used["author"], used["author_name"]) for used in usages] == [("", "")] * 3
    assert (await books.sum_spending(since=FIRST_DAY))[0].cost == before[0].cost + COST
    assert [(each.key, each.name) for each in await books.sum_spending("user", since=FIRST_DAY)] == [("", "")]
    assert await books.get_latest_names(["slack:ada"]) == {}


async def test_estimated_rows_end_with_their_turn_and_are_not_summed(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, books: SpendingStore
) -> None:
    running = await claim_turn(inbox, turns)
    of_turns = [
        row
        for id_ in (running.id, "gone")
        for row in make_rows([CALL], running.meter.to_attribution(), PRICES, turn=id_)
    ]
    async with database.write() as connection:
        await connection.execute(sa.insert(spending), of_turns)
    assert await books.sum_spending(since=FIRST_DAY) == [SpendingSum()]
    async with database.read() as connection:
        assert (await connection.execute(sa.select(spending.c.turn))).scalars().all() == [running.id]


@pytest.mark.parametrize("usage", ["7", '{"calls": ["x"]}', '{"calls": [{"model": "m", "input": "many"}]}'])
async def test_an_unreadable_usage_does_not_block_other_turns(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, books: SpendingStore, usage: str
) -> None:
    await end_turn(turns, await claim_turn(inbox, turns), CALL)
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(usage=sa.text(f"'{usage}'")))
    await end_turn(turns, await claim_turn(inbox, turns), CALL)
    await books.record_ended_turns()
    async with database.read() as connection:
        costs = sa.select(turns_table.c.cost).order_by(turns_table.c.created_at)
        assert (await connection.execute(costs)).scalars().all() == [0, COST]
