"""Edits and deletions of inbox messages before, during and after their turn."""

import asyncio
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types

from core.inbox.edits import ClaimedMessage, DeleteResult, EditResult
from core.inbox.store import InboxStore
from core.models.tokens import TokenCounter
from core.privacy.retention import DAY_SECONDS, CleanupService
from core.sessions.service import SessionService
from core.store.schema import blobs
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.turns.rerun import RerunDenial
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from tests.core.conftest import FailingDatabase, claim_turn, complete_turn, create_turn_store
from tests.core.sessions.events import list_texts, model_event, user_event
from tests.fixtures.inbox_messages import inbound


async def read_inbox(database: FailingDatabase) -> str:
    async with database.read() as connection:
        return str((await connection.execute(sa.select(inbox_table))).all())


async def test_an_edit_during_the_claim_is_in_the_turn_or_stored_with_it(inbox: InboxStore, turns: TurnStore) -> None:
    for number in range(10):
        message = inbound("old", session=f"place:{number}")
        await inbox.accept(message)
        claimed, edited = await asyncio.gather(turns.claim(10), inbox.edit_message(message.event_key, "new"))
        turn = claimed[0] if claimed else (await turns.claim(10))[0]  # PostgreSQL: a claim skips a locked session
        if edited is EditResult.WAITING:
            assert turn.newest_message.text == "new"
        else:
            assert edited == ClaimedMessage(turn.id, "running")
            assert turn.newest_message.text == "old"
        await complete_turn(turns, turn)


async def test_an_edit_during_a_turn_is_stored_until_it_is_reverted(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for text in ("one", "two"):
        await inbox.accept(inbound(text))
    turn = await claim_turn(turns)
    key = turn.newest_message.event_key
    for state in ("running", "answered", "done"):
        if state == "answered":
            await turns.save_answer(turn, "text", {})
        elif state == "done":
            await turns.end(turn, "done")
        edited = ClaimedMessage(turn.id, state, is_only_message=False)
        assert await inbox.edit_message(key, f"two, {state}") == edited
        assert await inbox.edit_message(key, f"two, {state}") is EditResult.UNCHANGED
    assert await inbox.edit_message(key, "two") == ClaimedMessage(turn.id, "done", is_only_message=False)
    assert await inbox.request_rerun(turn.id, author="ada", kind="revise") is RerunDenial.EXPIRED


async def test_unknown_reset_or_pruned_messages_cannot_be_edited_or_deleted(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    ended, running, waiting = inbound("one"), inbound("two"), inbound("three")
    await inbox.accept(ended)
    await complete_turn(turns, await claim_turn(turns))
    await inbox.accept(running)
    turn = await claim_turn(turns)
    await inbox.accept(waiting)
    await inbox.reset_session(reset := inbound("reset"))
    for message in (ended, running, waiting, reset, inbound()):
        assert await inbox.edit_message(message.event_key, "four") is EditResult.UNKNOWN
        assert await inbox.delete_message(message.event_key) is DeleteResult.UNKNOWN
    await turns.end(turn, "cancelled")
    await inbox.accept(old := inbound("old"))
    await complete_turn(turns, await claim_turn(turns))
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(finished_at=time.time() - 31 * DAY_SECONDS, cost=0))
    await CleanupService(database, days=30).delete_batch()
    assert await inbox.edit_message(old.event_key, "four") is EditResult.UNKNOWN
    assert await inbox.delete_message(old.event_key) is DeleteResult.UNKNOWN
    assert "four" not in await read_inbox(database)


async def test_a_turn_whose_messages_are_all_deleted_is_cancelled_on_any_worker(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("a secret"))
    turn = await claim_turn(turns)
    for _ in range(2):
        assert await inbox.delete_message(turn.newest_message.event_key) == ClaimedMessage(
            turn.id, "running", is_turn_cancelled=True
        )
    assert await turns.list_owned() == {turn.id: CancelReason.MESSAGE_DELETED}
    await turns._lease.release()
    other = await create_turn_store(database)
    claimed = await claim_turn(other)
    assert (claimed.cancel, claimed.newest_message.address) == (
        CancelReason.MESSAGE_DELETED,
        turn.newest_message.address,
    )
    await other.end(claimed, "cancelled", error=CancelReason.MESSAGE_DELETED)
    assert "secret" not in await read_inbox(database)
    for kind in ("retry", "regenerate", "revise"):
        assert await inbox.request_rerun(turn.id, author="ada", kind=kind) is RerunDenial.EXPIRED


async def test_the_events_of_a_run_are_deleted_with_its_deleted_message(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, tmp_path: Path
) -> None:
    service = SessionService(database, TokenCounter(tmp_path))

    async def list_history() -> list[str]:
        session = await service.get_session(app_name="app", user_id="place", session_id="place:1")
        assert session is not None
        return list_texts(session.events)

    async def begin_turn(text: str) -> Turn:
        await inbox.accept(inbound(text))
        turn = await claim_turn(turns)
        session = await service.get_session(app_name="app", user_id="place", session_id="place:1")
        assert session is not None
        for event in (user_event(text, invocation_id=turn.id), model_event(f"about {text}", invocation_id=turn.id)):
            await service.append_event(session, event)
        return turn

    await complete_turn(turns, await begin_turn("one"))
    running = await begin_turn("a secret")
    await inbox.delete_message(running.newest_message.event_key)
    await turns.end(running, "cancelled", error=CancelReason.MESSAGE_DELETED)
    assert await list_history() == ["one", "about one"]
    answered = await begin_turn("three")
    await turns.save_answer(answered, "about three", {})
    await inbox.delete_message(answered.newest_message.event_key)
    await turns.end(answered, "done")  # its worker has not seen the deletion
    assert await list_history() == ["one", "about one", "three", "about three"]
    async with database.read() as connection:
        answer_text = (
            await connection.execute(sa.select(turns_table.c.text).where(turns_table.c.id == answered.id))
        ).scalar()
    assert answer_text == "about three"


async def test_bytes_of_a_deleted_message_stay_if_another_event_refers_to_them(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, tmp_path: Path
) -> None:
    service = SessionService(database, TokenCounter(tmp_path))
    both, own = b"shown by both" * 100, b"its own" * 200

    async def begin_turn_with_images(*pictures: bytes) -> Turn:
        await inbox.accept(inbound("look"))
        turn = await claim_turn(turns)
        session = await service.get_session(app_name="app", user_id="place", session_id="place:1")
        assert session is not None
        parts = [types.Part.from_bytes(data=picture, mime_type="image/png") for picture in pictures]
        content = types.Content(role="user", parts=parts)
        await service.append_event(session, Event(author="user", invocation_id=turn.id, content=content))
        return turn

    await complete_turn(turns, await begin_turn_with_images(both))
    running = await begin_turn_with_images(both, own)
    await inbox.delete_message(running.newest_message.event_key)
    await turns.end(running, "cancelled", error=CancelReason.MESSAGE_DELETED)
    async with database.read() as connection:
        assert (await connection.execute(sa.select(blobs.c.data))).scalars().all() == [both]


async def test_a_reset_overrides_every_other_reason_to_end_a_turn(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("a secret"))
    turn = await claim_turn(turns)
    await inbox.reset_session(inbound("reset"))
    reasons: list[Any] = []
    async with database.write() as connection:
        for reason in (CancelReason.STOP, CancelReason.MESSAGE_DELETED):
            reasons.append(await turns.request_cancel(connection, turn.session_id, reason))
    assert reasons == [None, None]
    await turns.end(turn, "cancelled")
    assert "secret" not in await read_inbox(database)
