import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from core.errors import StoreError
from core.inbox import Inbox
from core.store.database import Database
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.turns import Turns
from tests.core.conftest import Faulty
from tests.inbounds import inbound


async def column(database: Database, chosen: sa.Column[Any]) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(chosen))).scalars())


async def test_the_messages_of_a_session_are_taken_one_at_a_time_as_they_were_sent(inbox: Inbox, turns: Turns) -> None:
    first, second, third = inbound(), inbound(), inbound()
    for message in (third, first, second):
        await inbox.accept(message)
    for expected in (first, second, third):
        (turn,) = await turns.claim(10)
        assert turn.inbound == expected
        assert await turns.claim(10) == []
        await turns.end(turn.id, "done")


async def test_no_more_turns_begin_than_asked_for(inbox: Inbox, turns: Turns) -> None:
    for number in range(5):
        await inbox.accept(inbound(session=f"place:{number}"))
    assert [len(await turns.claim(2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_many_claims_at_once_begin_each_turn_once(inbox: Inbox, turns: Turns) -> None:
    for number in range(12):
        await inbox.accept(inbound(session=f"place:{number % 4}"))
    claimed = [turn for turns in await asyncio.gather(*(turns.claim(3) for _ in range(8))) for turn in turns]
    assert sorted(turn.session_id for turn in claimed) == [f"place:{number}" for number in range(4)]


async def test_the_database_itself_refuses_a_second_turn_of_a_session(
    inbox: Inbox, turns: Turns, database: Faulty
) -> None:
    await inbox.accept(inbound())
    await turns.claim(1)
    row = {"id": "other", "session": "place:1", "generation": 1, "origin": "other", "state": "running"}
    row |= {"chunks": [], "created_at": 0.0}
    with pytest.raises(IntegrityError):
        async with database.write() as connection:
            await connection.execute(sa.insert(turns_table).values(**row))


async def test_a_turn_that_was_left_over_is_found_as_it_was(inbox: Inbox, turns: Turns) -> None:
    for number in range(3):
        await inbox.accept(inbound(session=f"place:{number}"))
    running, answered, done = await turns.claim(10)
    await turns.shown(running.id, ["m1", "m2"])
    await turns.answered(answered.id, "the answer", {"input": 1})
    await turns.end(done.id, "done")
    one, other = await turns.left_over()
    assert (one.id, one.chunks, one.text, one.inbound) == (running.id, ("m1", "m2"), None, running.inbound)
    assert (other.id, other.chunks, other.text) == (answered.id, (), "the answer")


async def test_a_turn_ends_with_the_message_that_it_answered(inbox: Inbox, turns: Turns, database: Faulty) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await turns.end(turn.id, "failed", error="why")
    assert await column(database, turns_table.c.state) == ["failed"]
    assert await column(database, turns_table.c.error) == ["why"]
    assert await column(database, inbox_table.c.outcome) == ["failed"]
    assert await turns.left_over() == []


async def test_a_passing_fault_of_the_database_loses_no_end(inbox: Inbox, turns: Turns, database: Faulty) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    database.failures = 2
    await turns.answered(turn.id, "text", {})
    database.failures = 2
    await turns.end(turn.id, "done")
    assert await column(database, turns_table.c.state) == ["done"]


async def test_a_fault_that_stays_is_told_after_some_attempts_and_the_turn_is_left_over(
    inbox: Inbox, turns: Turns, database: Faulty
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    database.failures = 100
    with pytest.raises(StoreError):
        await turns.end(turn.id, "done")
    assert database.failures == 97
    database.failures = 0
    assert [left.id for left in await turns.left_over()] == [turn.id]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=15), st.integers(1, 4))
async def test_every_message_gets_one_turn_in_the_order_of_its_session(
    turns: Turns, inbox: Inbox, said: list[tuple[str, int]], limit: int
) -> None:
    messages = [inbound(session=f"p:{name}", sent_at=float(at)) for name, at in said]
    for message in messages:
        await inbox.accept(message)
    taken = []
    while claimed := await turns.claim(limit):
        assert len(claimed) <= limit
        assert len({turn.session_id for turn in claimed}) == len(claimed)
        for turn in claimed:
            taken.append(turn.inbound)
            await turns.end(turn.id, "done")
    for name in "abc":
        session = f"p:{name}"
        expected = sorted((m for m in messages if m.session_id == session), key=lambda m: m.sent_at)
        assert [m for m in taken if m.session_id == session] == expected
