import asyncio
import time
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
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.store.schema import workers
from core.turns.claims import MAX_MESSAGES
from core.turns.rerun import RerunDenial
from core.turns.store import TurnStore
from core.turns.turn import Turn
from tests.core.conftest import FailingDatabase, complete_turn, create_turn_store
from tests.fixtures.inbox_messages import inbound


async def list_values(database: Database, chosen: sa.Column[Any]) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(chosen))).scalars())


async def test_messages_of_an_idle_session_are_claimed_in_their_order(inbox: InboxStore, turns: TurnStore) -> None:
    first, second, third = inbound(), inbound(), inbound()
    await inbox.accept(second)
    await inbox.accept(first)
    (turn,) = await turns.claim(10)
    await inbox.accept(third)
    assert await turns.claim(10, running=[turn.id]) == []
    await complete_turn(turns, turn)
    (last,) = await turns.claim(10)
    assert turn.messages + last.messages == (first, second, third)


async def test_a_claim_begins_at_most_the_requested_turns(inbox: InboxStore, turns: TurnStore) -> None:
    for number in range(5):
        await inbox.accept(inbound(session=f"place:{number}"))
    sizes, running = [], list[str]()
    for _ in range(4):
        claimed = await turns.claim(2, running=running)
        running += [turn.id for turn in claimed]
        sizes.append(len(claimed))
    assert sizes == [2, 2, 1, 0]


async def test_a_worker_without_a_lease_does_not_reclaim_its_running_turn(inbox: InboxStore, turns: TurnStore) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await turns._lease.release()
    assert await turns.claim(1, running=[turn.id]) == []
    assert [reclaimed.id for reclaimed in await turns.claim(1)] == [turn.id]


async def test_many_workers_that_claim_at_once_begin_each_turn_once(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for number in range(24):
        await inbox.accept(inbound(session=f"place:{number % 8}"))
    workers = [turns] if database.is_sqlite else [await create_turn_store(database) for _ in range(4)]

    async def claim_all(worker: TurnStore) -> list[Turn]:
        mine = list[Turn]()
        for _ in range(8):
            mine += await worker.claim(1, running=[turn.id for turn in mine])
        return mine

    claimed = [turn.session_id for turn_list in await asyncio.gather(*map(claim_all, workers)) for turn in turn_list]
    assert sorted(claimed) == [f"place:{number}" for number in range(8)]


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


async def test_every_attempt_answers_the_messages_that_waited_together(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    messages = [inbound(f"part {number}") for number in range(3)]
    for message in messages:
        await inbox.accept(message)
    (turn,) = await turns.claim(10)
    assert (turn.messages, turn.newest_message) == (tuple(messages), messages[-1])
    later = inbound("part 4")
    await inbox.accept(later)
    new = await create_successor(database, turns)
    (reclaimed,) = await new.claim(10)
    assert reclaimed.messages == turn.messages
    await complete_turn(new, reclaimed)
    (last,) = await new.claim(10)
    assert last.messages == (later,)


async def test_a_turn_answers_a_limited_number_of_messages(inbox: InboxStore, turns: TurnStore) -> None:
    messages = [inbound() for _ in range(MAX_MESSAGES + 1)]
    for message in messages:
        await inbox.accept(message)
    (turn,) = await turns.claim(10)
    await complete_turn(turns, turn)
    (rest,) = await turns.claim(10)
    assert turn.messages + rest.messages == tuple(messages)
    assert rest.messages == (messages[-1],)


async def test_a_retry_is_a_new_turn_with_the_messages_of_the_failed_one(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    messages = [inbound("one"), inbound("two", author="bob")]
    for message in messages:
        await inbox.accept(message)
    (failed,) = await turns.claim(1)
    await turns.end(failed, "failed", error="why")
    assert await inbox.request_rerun(failed.id, author="eve", kind="retry") is RerunDenial.NOT_OWNER
    await inbox.request_rerun(failed.id, author="bob", kind="retry")
    await inbox.accept(inbound("meanwhile", sent_at=time.time() + 1))
    (retry,) = await turns.claim(10)
    assert (retry.kind, retry.origin, retry.messages) == ("retry", failed.id, tuple(messages))
    new = await create_successor(database, turns)
    assert await new.claim(10) == [replace(retry, attempt=2, is_resumed=True)]


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


async def test_a_worker_resumes_its_own_turn_that_it_does_not_run(inbox: InboxStore, turns: TurnStore) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    assert await turns.claim(1, running=[turn.id]) == []
    assert await turns.claim(1) == [replace(turn, is_resumed=True)]


async def test_a_worker_with_an_expired_lease_does_not_resume_its_running_turn(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    async with database.write() as connection:
        await connection.execute(sa.update(workers).values(lease_expires_at=0.0))
    assert await turns.claim(1, running=[turn.id]) == []
    assert [reclaimed.id for reclaimed in await turns.claim(1)] == [turn.id]


async def test_a_reset_marks_the_running_turn(inbox: InboxStore, turns: TurnStore) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    assert await turns.list_owned() == {turn.id: None}
    await inbox.reset_session(inbound("reset"))
    assert await turns.list_owned() == {turn.id: "reset"}


async def test_a_reset_deletes_texts_once_their_turn_has_ended(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (failed,) = await turns.claim(1)
    await turns.end(failed, "failed")
    await inbox.request_rerun(failed.id, author="ada", kind="retry")
    await turns.claim(1)
    await inbox.reset_session(inbound("reset"))
    new = await create_successor(database, turns)
    (claimed,) = await new.claim(1)
    assert (claimed.messages, claimed.cancel) == (failed.messages, "reset")
    await new.end(claimed, "cancelled")
    assert set(await list_values(database, inbox_table.c.message)) == {None}


async def test_a_turn_ends_with_the_message_that_it_answered(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await turns.end(turn, "failed", error="why")
    assert await list_values(database, turns_table.c.state) == ["failed"]
    assert await list_values(database, turns_table.c.error) == ["why"]
    assert await (await create_successor(database, turns)).claim(10) == []


async def test_a_transient_database_error_loses_no_end_of_a_turn(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    database.failures = 2
    await turns.save_answer(turn, "text", {})
    database.failures = 2
    await complete_turn(turns, turn)
    assert await list_values(database, turns_table.c.state) == ["done"]


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
