import asyncio
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import StoreError
from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult, InboxMessage
from core.sessions.lifecycle import begin_generation
from core.store.database import Database
from core.store.schema import inbox as table
from core.store.schema import sessions
from core.store.schema import turns as turns_table
from core.turns.rerun import RerunDenial
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from tests.core.conftest import FailingDatabase, complete_turn
from tests.fixtures.inbox_messages import inbound


async def list_rows(database: Database, columns: Any = table) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(columns))).all())


async def test_a_message_is_accepted_once_however_many_deliveries_come_at_the_same_moment(
    inbox: InboxStore, database: Database
) -> None:
    message = inbound()
    accepted = await asyncio.gather(*(inbox.accept(message) for _ in range(20)))
    assert sorted(map(str, accepted)) == ["AcceptResult.DUPLICATE"] * 19 + ["AcceptResult.NEXT"]
    assert len(await list_rows(database)) == 1


async def test_two_first_messages_of_a_session_at_the_same_moment_are_both_accepted(
    inbox: InboxStore, database: Database
) -> None:
    accepted = await asyncio.gather(*(inbox.accept(inbound()) for _ in range(10)))
    counted = Counter(accepted)
    assert counted[AcceptResult.NEXT] >= 1  # PostgreSQL: concurrent inserts do not see each other
    assert counted[AcceptResult.NEXT] + counted[AcceptResult.WAITING] == 10
    assert len(await list_rows(database)) == 10


async def test_a_second_delivery_begins_no_session_that_was_deleted(inbox: InboxStore, database: Database) -> None:
    await inbox.accept(message := inbound())
    async with database.write() as connection:
        await connection.execute(sa.delete(sessions).where(sessions.c.id == message.session_id))
    assert await inbox.accept(message) is AcceptResult.DUPLICATE
    assert not await inbox.has_session(message.session_id)


async def test_a_reset_deletes_the_texts_of_messages(inbox: InboxStore, turns: TurnStore, database: Database) -> None:
    await inbox.accept(inbound("a secret"))
    (ended,) = await turns.claim(10)
    await turns.save_answer(ended, "the secret answer", {})
    await turns.end(ended, "done")
    await inbox.accept(inbound("a secret"))
    (running,) = await turns.claim(10)
    await turns.save_answer(running, "the secret answer", {})
    await inbox.accept(inbound("a secret"))
    await inbox.reset_session(inbound("reset"))
    await turns.save_answer(running, "the secret answer", {})  # its worker has not seen the reset yet
    await turns.end(running, "failed", error="the reply cannot be shown")
    rows = str(await list_rows(database)) + str(await list_rows(database, turns_table))
    assert "a secret" not in rows
    assert "secret answer" not in rows


async def test_a_message_during_a_reset_belongs_to_the_new_generation(inbox: InboxStore, database: Database) -> None:
    await inbox.accept(inbound())
    begun = asyncio.Event()
    async with database.write() as connection:
        assert await begin_generation(connection, "place:1") == 2
        sa.event.listen(database.engine.sync_engine, "before_cursor_execute", lambda *_: begun.set())
        accepting = asyncio.create_task(inbox.accept(message := inbound("anew")))
        if not database.is_sqlite:  # there, the statement begins after the reset
            await begun.wait()
    await accepting
    rows = await list_rows(database)
    assert [row.generation for row in rows if row.event_key == message.event_key] == [2]


async def test_a_late_reset_drops_only_messages_before_it(inbox: InboxStore, turns: TurnStore) -> None:
    first, before, reset, after = inbound("first"), inbound("before"), inbound("reset"), inbound("after")
    await inbox.accept(first)
    (running,) = await turns.claim(10)
    await inbox.accept(after)
    await inbox.accept(before)
    assert await inbox.reset_session(reset, until=reset.sent_at) == [before]
    assert await turns.list_owned() == {running.id: CancelReason.RESET}
    await turns.end(running, "cancelled")
    (turn,) = await turns.claim(10)
    assert (turn.messages, turn.generation) == ((after,), running.generation + 1)


async def test_a_late_reset_does_not_end_a_turn_of_a_later_message(inbox: InboxStore, turns: TurnStore) -> None:
    reset, after, next_one = inbound("reset"), inbound("after"), inbound("next")
    await inbox.accept(after)
    (running,) = await turns.claim(10)
    await inbox.accept(next_one)
    for became in (RerunDenial.SUPERSEDED, None):
        assert await inbox.reset_session(reset, until=reset.sent_at) is became
    assert CancelReason.RESET not in (await turns.list_owned()).values()
    await complete_turn(turns, running)
    (turn,) = await turns.claim(10)
    assert (turn.messages, turn.generation) == ((next_one,), running.generation)


async def create_failed_turn(inbox: InboxStore, turns: TurnStore, **kwargs: Any) -> Turn:
    await inbox.accept(inbound(**kwargs))
    (turn,) = await turns.claim(1)
    await turns.save_message_ids(turn, ["m1", "m2"])
    await turns.end(turn, "failed", error="why")
    return turn


async def request_retry(inbox: InboxStore, turn: Turn) -> tuple[AcceptResult, InboxMessage]:
    tried = await inbox.request_rerun(turn.id, author="ada", kind="retry")
    assert isinstance(tried, tuple)
    return tried


async def test_a_button_press_waits_for_the_database_and_a_message_does_not(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    failed = await create_failed_turn(inbox, turns)
    database.failures = 2
    assert (await request_retry(inbox, failed))[0] is AcceptResult.NEXT
    for take in (inbox.accept, inbox.reset_session):
        database.failures = 1
        with pytest.raises(StoreError):
            await take(inbound())
