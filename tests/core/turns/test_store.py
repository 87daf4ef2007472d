from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from core.errors import StoreError, TurnLostError
from core.inbox.store import InboxStore
from core.messages.inbox_message import InboxMessage
from core.store.database import Database
from core.store.notify import NotificationBus
from core.store.schema import turns as turns_table
from core.turns.store import TurnStore
from tests.core.conftest import FailingDatabase, complete_turn, create_turn_store
from tests.fixtures.inbox_messages import inbound


async def list_values(database: Database, chosen: sa.Column[Any]) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(chosen))).scalars())


async def test_a_worker_without_a_lease_does_not_reclaim_its_running_turn(inbox: InboxStore, turns: TurnStore) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await turns._lease.release()
    assert await turns.claim(1, running=[turn.id]) == []
    assert [reclaimed.id for reclaimed in await turns.claim(1)] == [turn.id]


async def test_the_database_itself_refuses_a_second_turn_of_a_session(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    await turns.claim(1)
    row: dict[str, Any] = {"id": "other", "session": "place:1", "generation": 1, "origin": "other", "state": "running"}
    row |= {"chunks": [], "created_at": 0.0}
    with pytest.raises(IntegrityError):
        async with database.write() as connection:
            await connection.execute(sa.insert(turns_table).values(**row))


async def test_an_abandoned_turn_resumes_unchanged(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for number in range(3):
        await inbox.accept(inbound(session=f"place:{number}"))
    running, answered, ended = await turns.claim(10)
    await turns.save_message_ids(running, ["m1", "m2"])
    await turns.save_answer(answered, "the answer", {"input": 1})
    await complete_turn(turns, ended)
    one, other = await (await create_successor(database, turns)).claim(10)
    assert one == replace(running, message_ids=("m1", "m2"), attempt=2, is_resumed=True)
    assert other == replace(answered, text="the answer", attempt=2, is_resumed=True)


async def create_successor(database: FailingDatabase, turns: TurnStore) -> TurnStore:
    """End the lease of a worker, and return the turn store of another worker."""
    await turns._lease.release()
    return await create_turn_store(database)


async def test_writes_of_a_former_owner_are_refused(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    (claimed,) = await (await create_successor(database, turns)).claim(1)
    for write in (
        turns.save_message_ids(turn, ["m1"]),
        turns.save_answer(turn, "text", {}),
        turns.end(turn, "failed"),
        turns.hand_back(turn),
    ):
        with pytest.raises(TurnLostError):
            await write
    assert await list_values(database, turns_table.c.state) == ["running"]
    assert await list_values(database, turns_table.c.attempt) == [claimed.attempt]
    assert await turns.list_owned() == {}


async def test_a_returned_turn_resumes_at_once_without_a_counted_attempt(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for number in range(2):
        await inbox.accept(inbound(session=f"place:{number}"))
    running, answered = await turns.claim(10)
    await turns.save_answer(answered, "the answer", {})
    for turn in (running, answered):
        await turns.hand_back(turn)
    assert sorted(await list_values(database, turns_table.c.state)) == ["answered", "queued"]
    await inbox.accept(inbound("behind it", session="place:0"))
    other = await create_turn_store(database)
    assert await other.claim(10) == [
        replace(running, is_resumed=True),
        replace(answered, is_resumed=True, text="the answer"),
    ]
    assert sorted(await list_values(database, turns_table.c.state)) == ["answered", "running"]


async def test_a_turn_is_handed_back_without_a_notification(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)

    async def fail_to_notify(*_args: Any) -> None:
        raise StoreError("out of reach")

    monkeypatch.setattr(NotificationBus, "notify", fail_to_notify)
    await turns.hand_back(turn)
    assert await list_values(database, turns_table.c.state) == ["queued"]


async def test_an_attempt_counts_when_a_lease_expires_with_the_turn_running(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    for attempt in (2, 3, 4):
        former, its = turns, turn
        turns = await create_successor(database, former)
        (turn,) = await turns.claim(1)
        assert turn.attempt == attempt
        with pytest.raises(TurnLostError):
            await former.save_message_ids(its, ["m1"])
    await turns.hand_back(turn)
    (turn,) = await (await create_successor(database, turns)).claim(1)
    assert turn.attempt == 4, "a restart counts nothing"
    assert await list_values(database, turns_table.c.attempt) == [4]


async def test_a_lasting_fault_is_raised_after_retries_and_the_turn_resumes_later(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    database.failures = 100
    with pytest.raises(StoreError):
        await complete_turn(turns, turn)
    assert database.failures == 97
    database.failures = 0
    assert [left.id for left in await turns.claim(10)] == [turn.id]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=15), st.integers(1, 4))
async def test_every_message_gets_one_turn_in_the_order_of_its_session(
    turns: TurnStore, inbox: InboxStore, script: list[tuple[str, int]], limit: int
) -> None:
    messages = [inbound(session=f"p:{name}", sent_at=float(at)) for name, at in script]
    for message in messages:
        await inbox.accept(message)
    claimed_messages = list[InboxMessage]()
    while claimed := await turns.claim(limit):
        assert len(claimed) <= limit
        assert len({turn.session_id for turn in claimed}) == len(claimed)
        for turn in claimed:
            claimed_messages += turn.messages
            await complete_turn(turns, turn)
    for name in "abc":
        session = f"p:{name}"
        expected = sorted((m for m in messages if m.session_id == session), key=lambda m: m.sent_at)
        assert [m for m in claimed_messages if m.session_id == session] == expected
