import time
from typing import Any

import pytest
import sqlalchemy as sa

from core.conversations.service import ConversationService
from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult
from core.privacy import retention
from core.privacy.retention import DAY_SECONDS, HOUR_SECONDS, CleanupService
from core.store.schema import inbox as inbox_table
from core.store.schema import tool_calls, workers
from core.store.schema import turns as turns_table
from core.turns.store import TurnStore
from core.turns.worker import Worker
from tests.core.conftest import FailingDatabase, complete_turn
from tests.fixtures.inbox_messages import inbound


async def age(database: FailingDatabase, *, days: float) -> None:
    """Move the times of ended turns, inbox messages and tool calls back by `days`."""
    at = time.time() - days * DAY_SECONDS
    async with database.write() as connection:
        ended = turns_table.c.finished_at.is_not(None)
        await connection.execute(sa.update(turns_table).where(ended).values(finished_at=at, cost=0))
        await connection.execute(sa.update(inbox_table).values(accepted_at=at))
        await connection.execute(sa.update(tool_calls).values(started_at=at))


async def count_rows(database: FailingDatabase) -> dict[str, int]:
    async with database.read() as connection:
        tables = (turns_table, inbox_table, tool_calls)
        return {
            table.name: (await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one()
            for table in tables
        }


async def accept_and_complete(inbox: InboxStore, turns: TurnStore, **fields: Any) -> None:
    await inbox.accept(inbound(**fields))
    (turn,) = await turns.claim(1)
    await complete_turn(turns, turn)


async def delete_expired(database: FailingDatabase, *, days: float = 30) -> None:
    old = CleanupService(database, days=days)
    while await old.delete_batch():
        pass


async def list_recent_sessions(database: FailingDatabase, turns: TurnStore, author: str) -> list[str]:
    conversations = ConversationService(database, turns, Worker(turns), budget=1)
    return [one.session_id for one in await conversations.list_recent("place", author, 9)]


async def test_old_turns_are_deleted_and_each_persons_newest_session_stays_known(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for author in ("ada", "bob"):
        for number in range(3):
            await accept_and_complete(inbox, turns, session=f"place:{author}{number}", author=author)
    async with database.write() as connection:
        call = {
            "session": "s",
            "run": "r",
            "id": "c",
            "tool": "t",
            "arguments": {},
            "arguments_hash": "",
            "state": "ended",
        }
        await connection.execute(sa.insert(tool_calls).values(**call, started_at=time.time()))
    await age(database, days=31)
    await delete_expired(database)
    assert await count_rows(database) == {"turns": 0, "inbox": 2, "tool_calls": 0}
    assert await list_recent_sessions(database, turns, "ada") == ["place:ada2"]


async def test_recent_and_unfinished_turns_stay(inbox: InboxStore, turns: TurnStore, database: FailingDatabase) -> None:
    await accept_and_complete(inbox, turns, session="place:1")
    await inbox.accept(inbound(session="place:2"))
    await turns.claim(1)
    await inbox.accept(inbound(session="place:2"))
    await age(database, days=29)
    await delete_expired(database)
    assert await count_rows(database) == {"turns": 2, "inbox": 3, "tool_calls": 0}
    await age(database, days=31)
    await delete_expired(database)
    assert await count_rows(database) == {"turns": 1, "inbox": 2, "tool_calls": 0}
    assert await inbox.accept(inbound(session="place:2")) is AcceptResult.WAITING


async def test_workers_are_deleted_long_after_their_lease(turns: TurnStore, database: FailingDatabase) -> None:
    now = time.time()
    async with database.write() as connection:
        for id_, lease in (("gone", now - 2 * HOUR_SECONDS), ("silent", now - HOUR_SECONDS / 2)):
            await connection.execute(sa.insert(workers).values(id=id_, lease_expires_at=lease, rate_limit_usage={}))
    await delete_expired(database)
    async with database.read() as connection:
        worker_ids = set((await connection.execute(sa.select(workers.c.id))).scalars())
    assert worker_ids == {"silent", turns.worker_id}


async def test_deletion_works_in_batches(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_SIZE", 2)
    for number in range(5):
        await accept_and_complete(inbox, turns, session=f"place:{number}")
    await age(database, days=31)
    steps = [await CleanupService(database, days=30).delete_batch() for _ in range(5)]
    assert max(steps) <= 4
    assert sum(steps) == 9
    assert steps[-1] == 0


async def test_a_turn_stays_as_long_as_its_rerun(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("what is it?"))
    (first,) = await turns.claim(1)
    await complete_turn(turns, first)
    await age(database, days=31)
    await inbox.request_rerun(first.id, author="ada", kind="regenerate")
    await delete_expired(database)
    (reclaimed,) = await turns.claim(1)
    assert (reclaimed.origin, reclaimed.newest_message.text) == (first.id, "what is it?")
    await delete_expired(database)
    await complete_turn(turns, reclaimed)
    await age(database, days=29)
    async with database.write() as connection:
        long_ago = time.time() - 31 * DAY_SECONDS
        await connection.execute(
            sa.update(turns_table).where(turns_table.c.id == first.id).values(finished_at=long_ago)
        )
        await connection.execute(sa.update(inbox_table).values(accepted_at=long_ago))
    await delete_expired(database)
    assert await count_rows(database) == {"turns": 2, "inbox": 2, "tool_calls": 0}
    await inbox.request_rerun(reclaimed.id, author="ada", kind="regenerate")
    assert [turn.newest_message.text for turn in await turns.claim(1)] == ["what is it?"]


async def test_unaddressed_messages_do_not_displace_the_newest_session(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await accept_and_complete(inbox, turns, session="place:1", author="grace")
    await accept_and_complete(inbox, turns, session="place:2", author="ada")
    aside = inbound(session="place:2", author="grace")
    row = {"event_key": "aside", "session": "place:2", "generation": 1, "place": "place", "author": "grace"}
    row |= {"sent_at": aside.sent_at, "accepted_at": time.time(), "outcome": "unaddressed"}
    async with database.write() as connection:
        for number in range(3):
            fields = {"event_key": f"aside {number}", "sent_at": aside.sent_at + number}
            await connection.execute(sa.insert(inbox_table).values(**(row | fields)))
    await age(database, days=31)
    await delete_expired(database)
    assert await count_rows(database) == {"turns": 0, "inbox": 3, "tool_calls": 0}
    assert await list_recent_sessions(database, turns, "grace") == ["place:1"]
