"""Entries of the inbox that are no messages, with workers that crash."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import StoreError
from core.inbox import entries as entries_module
from core.inbox.entries import MAX_AGE_SECONDS, EntryStore, InboxEntry
from core.messages.inbox_message import InboxOutcome
from core.privacy.retention import CleanupService
from core.privacy.vault import Cipher
from core.store.database import Database
from core.store.schema import IS_PENDING, inbox
from core.store.workers.lease import Lease
from tests.fixtures.inbox_messages import inbound

CIPHER = Cipher("a secret")


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "POLL_SECONDS", 0.01)


async def create_worker(database: Database) -> EntryStore:
    """Return the entry store of a worker that starts after all others crashed."""
    async with database.write() as connection:
        await connection.execute(sa.text("DELETE FROM workers"))
    lease = Lease(database)
    await lease.acquire()
    return EntryStore(database, lease)


def press(key: str, platform: str = "slack") -> InboxEntry:
    message = replace(inbound("", session=f"{platform}:1:2"), event_key=key, place=f"{platform}:1")
    return InboxEntry("press", message, {"button": "stop:t1"}, {"token": "secret"})


async def list_pending(database: Database) -> list[str]:
    query = sa.select(inbox.c.event_key).where(IS_PENDING).order_by(inbox.c.event_key)
    async with database.read() as connection:
        return list((await connection.execute(query)).scalars())


@asynccontextmanager
async def run_abandoned(store: EntryStore, loops: int = 1) -> AsyncIterator[asyncio.Queue[InboxEntry]]:
    """Handle the entries of dead workers; yield a queue of them.

    Args:
        loops: the number of concurrent loops.
    """
    found = asyncio.Queue[InboxEntry]()

    async def run(entry: InboxEntry) -> None:
        async with store.handle(entry):
            await asyncio.sleep(0)
        found.put_nowait(entry)

    tasks = [asyncio.create_task(store.run_abandoned("slack", CIPHER, run)) for _ in range(loops)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_handled_or_failed_entry_ends_and_a_cancelled_one_stays(database: Database) -> None:
    store = await create_worker(database)
    for key in ("cancelled", "failed", "handled"):
        await store.append(press(key), CIPHER)
    async with store.handle(press("handled")):
        assert "handled" in await list_pending(database)
    with pytest.raises(StoreError):
        async with store.handle(press("failed")):
            raise StoreError("out of reach")
    with pytest.raises(asyncio.CancelledError):
        async with store.handle(press("cancelled")):
            raise asyncio.CancelledError
    assert await list_pending(database) == ["cancelled"]


async def test_entries_of_a_dead_worker_are_handled_once(database: Database) -> None:
    dead = await create_worker(database)
    presses = [press(f"press {number}") for number in range(3)]
    for entry in (*presses, press("elsewhere", "discord")):
        await dead.append(entry, CIPHER)
    store = await create_worker(database)
    await store.append(press("my own"), CIPHER)
    async with run_abandoned(store, loops=2) as found:
        handled = [await asyncio.wait_for(found.get(), 30) for _ in range(3)]
    assert sorted(entry.event_key for entry in handled) == ["press 0", "press 1", "press 2"]
    assert found.empty()
    assert await list_pending(database) == ["elsewhere", "my own"]


async def test_an_entry_that_is_too_old_or_unreadable_is_dropped(database: Database) -> None:
    dead = await create_worker(database)
    await dead.append(press("a press"), CIPHER)
    async with database.write() as connection:
        await connection.execute(sa.update(inbox).values(accepted_at=inbox.c.accepted_at - MAX_AGE_SECONDS - 1))
    await dead.append(press("of another key"), Cipher("another secret"))
    await dead.append(press("a later press"), CIPHER)
    async with run_abandoned(await create_worker(database)) as found:
        assert (await asyncio.wait_for(found.get(), 30)).event_key == "a later press"
    assert found.empty()
    assert await list_pending(database) == []


async def test_an_entry_is_encrypted_until_it_ends_and_deleted_after_a_day(database: Database) -> None:
    store, entry = await create_worker(database), press("a press")

    async def read_row() -> Any:
        async with database.read() as connection:
            return (await connection.execute(sa.select(inbox))).one_or_none()

    await store.append(entry, CIPHER)
    row = await read_row()
    assert "secret" not in str(row)
    assert InboxEntry.from_json(json.loads(CIPHER.decrypt(row.payload))).surface == {"token": "secret"}
    async with store.handle(entry):
        pass
    row = await read_row()
    assert (row.payload, row.owner, row.outcome, row.message) == (None, None, InboxOutcome.HANDLED, None)
    cleanup = CleanupService(database, days=30)
    await cleanup.delete_batch()
    assert await read_row() is not None
    async with database.write() as connection:
        await connection.execute(sa.update(inbox).values(accepted_at=inbox.c.accepted_at - 86_500))
    await cleanup.delete_batch()
    assert await read_row() is None


def test_an_interaction_of_version_0_1_0_is_read() -> None:
    context = {
        "session_id": None,
        "place": "slack:T1:C1",
        "author": "U1",
        "channel": "slack",
        "address": {"team": "T1"},
        "event_key": "slack:T1:C1:command:1",
        "locale": "en-US",
        "sent_at": 12.5,
        "until": 12.5,
        "actor": None,
        "location": {"workspace": "T1", "channel": "C1", "parents": [], "is_direct": False},
        "is_private": True,
    }
    interaction = {"kind": "command", "context": context, "values": {"name": "help"}, "surface": {"a": 1}, "name": ""}
    entry = InboxEntry.from_json(interaction)
    assert (entry.message.session_id, entry.message.author, entry.event_key) == ("", "U1", "slack:T1:C1:command:1")
    assert (entry.locale, entry.until, entry.is_private, entry.values) == ("en-US", 12.5, True, {"name": "help"})
