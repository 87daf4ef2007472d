"""Reruns of turns: same reply, once, and with the history before their message."""

import asyncio
import time
from typing import Any, cast

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event

from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult, InboxMessage
from core.sessions.service import SessionService
from core.store.schema import messages, tool_calls
from core.store.schema import turns as turns_table
from core.turns.queries import RerunKind
from core.turns.rerun import RerunDenial
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from core.turns.worker import Worker
from tests.core.conftest import FailingDatabase, claim_turn, complete_turn, create_turn_store
from tests.core.sessions.events import call_event, model_event, response_event, user_event
from tests.fixtures.inbox_messages import inbound


async def append_events(service: SessionService, turn: Turn, *events: Event) -> None:
    """Append events to the session's history, as events of the turn's run."""
    place = turn.newest_message.place
    session = await service.get_session(app_name="app", user_id=place, session_id=turn.session_id)
    assert session is not None
    for event in events:
        await service.append_event(session, event.model_copy(update={"invocation_id": turn.origin}))


async def list_stored_texts(database: FailingDatabase) -> list[str]:
    async with database.read() as connection:
        return list((await connection.execute(sa.select(messages.c.content).order_by(messages.c.id))).scalars())


async def create_answered_turn(
    inbox: InboxStore, turns: TurnStore, service: SessionService, *words: str, **kwargs: Any
) -> Turn:
    """Return an ended turn that called a tool, and has a reply of two messages.

    Args:
        words: the user's messages.
        kwargs: fields of the messages.
    """
    for text in words:
        await inbox.accept(inbound(text, **kwargs))
    turn = await claim_turn(turns)
    call = call_event("c1"), response_event("c1")
    await append_events(service, turn, user_event(" ".join(words)), *call, model_event(f"about {words[-1]}"))
    async with inbox._database.write() as connection:
        row = {
            "session": turn.session_id,
            "run": turn.origin,
            "id": "c1",
            "tool": "t",
            "arguments": {},
            "arguments_hash": "",
        }
        await connection.execute(sa.insert(tool_calls).values(**row, state="ended", started_at=time.time()))
    await turns.save_message_ids(turn, ["m1", "m2"])
    await complete_turn(turns, turn)
    return turn


async def request_rerun(
    inbox: InboxStore, turn: Turn, kind: RerunKind = "regenerate"
) -> tuple[AcceptResult, InboxMessage]:
    wanted = await inbox.request_rerun(turn.id, author="ada", kind=kind)
    assert isinstance(wanted, tuple)
    return wanted


async def test_the_next_worker_keeps_the_stored_events_of_a_rerun(
    inbox: InboxStore, turns: TurnStore, service: SessionService, database: FailingDatabase
) -> None:
    turn = await create_answered_turn(inbox, turns, service, "one")
    await request_rerun(inbox, turn)
    rerun = await claim_turn(turns)
    await append_events(service, rerun, call_event("c2"), response_event("c2", response={"result": "new"}))
    await turns._lease.release()
    other = await create_turn_store(database)
    claimed = await claim_turn(other)
    assert (claimed.kind, claimed.attempt, claimed.is_resumed) == ("regenerate", 2, True)
    assert await list_stored_texts(database) == ["one", "", '{"result": "new"}']
    await other.hand_back(claimed)
    claimed = await claim_turn(other)
    assert claimed.attempt == 2
    assert await list_stored_texts(database) == ["one", "", '{"result": "new"}']
    await other.end(claimed, "failed")
    await request_rerun(inbox, claimed, "retry")
    assert (await claim_turn(other)).kind == "retry"
    assert await list_stored_texts(database) == ["one", "", '{"result": "new"}']


async def test_repeated_requests_on_two_workers_rerun_a_turn_once(
    inbox: InboxStore, turns: TurnStore, service: SessionService, database: FailingDatabase
) -> None:
    turn = await create_answered_turn(inbox, turns, service, "one")
    await inbox.edit_message(turn.newest_message.event_key, "two")
    second = await create_turn_store(database)
    other = InboxStore(database, second, Worker(second))
    ways: list[tuple[InboxStore, RerunKind]] = [(inbox, "regenerate"), (other, "regenerate"), (other, "revise")]
    pressed = await asyncio.gather(*(request_rerun(into, turn, kind) for into, kind in ways * 3))
    assert sorted(accepted.name for accepted, _ in pressed) == ["DUPLICATE"] * 8 + ["NEXT"]
    rerun = await claim_turn(second)
    assert (rerun.kind, rerun.newest_message.text) == ("revise", "two")
    assert (await request_rerun(inbox, turn))[0] is AcceptResult.DUPLICATE
    await complete_turn(second, rerun)
    assert await inbox.request_rerun(turn.id, author="ada", kind="regenerate") is RerunDenial.EXPIRED
    await request_rerun(inbox, rerun)
    assert (await claim_turn(second)).origin == turn.id


@pytest.mark.parametrize("state", ["answered", "stopped"])
async def test_an_answered_or_stopped_turn_can_be_rerun(inbox: InboxStore, turns: TurnStore, state: str) -> None:
    await inbox.accept(inbound())
    turn = await claim_turn(turns)
    if state == "answered":
        await turns.save_answer(turn, "text", {})
    else:
        async with inbox._database.write() as connection:
            assert await turns.request_cancel(connection, turn.session_id, CancelReason.STOP) == turn.id
    assert (await request_rerun(inbox, turn))[0] is AcceptResult.WAITING
    assert await turns.claim(10, running=[turn.id]) == []
    await turns.end(turn, "done" if state == "answered" else "cancelled", error=CancelReason.STOP)
    assert (await claim_turn(turns)).origin == turn.id


async def test_only_the_author_of_the_newest_turn_may_rerun_it(
    inbox: InboxStore, turns: TurnStore, service: SessionService
) -> None:
    turn = await create_answered_turn(inbox, turns, service, "one")
    assert await inbox.request_rerun(turn.id, author="grace", kind="regenerate") is RerunDenial.NOT_OWNER
    await inbox.accept(inbound("two"))
    assert await inbox.request_rerun(turn.id, author="ada", kind="regenerate") is RerunDenial.SUPERSEDED
    second = await claim_turn(turns)
    assert await inbox.request_rerun(turn.id, author="ada", kind="regenerate") is RerunDenial.SUPERSEDED
    await complete_turn(turns, second)
    assert await inbox.request_rerun(turn.id, author="ada", kind="regenerate") is RerunDenial.SUPERSEDED
    assert (await request_rerun(inbox, second))[0] is AcceptResult.NEXT


async def test_a_late_message_during_a_rerun_is_answered_first(
    inbox: InboxStore, turns: TurnStore, service: SessionService, database: FailingDatabase
) -> None:
    turn = await create_answered_turn(inbox, turns, service, "one")
    await request_rerun(inbox, turn)
    await inbox.accept(inbound("late"))
    late = await claim_turn(turns)
    await append_events(service, late, user_event("late"), model_event("about late"))
    await complete_turn(turns, late)
    rerun = await claim_turn(turns)
    assert (rerun.kind, rerun.origin) == ("regenerate", turn.id)
    assert await list_stored_texts(database) == ["late", "about late", "one"]


async def test_a_retry_of_a_turn_that_is_answered_after_all_is_dropped(inbox: InboxStore, turns: TurnStore) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await inbox.request_rerun(turn.id, author="ada", kind="retry")  # the apology is visible, and the process dies
    await turns.hand_back(turn)
    (rerun,) = await turns.claim(10)
    await complete_turn(turns, rerun)
    assert await turns.claim(10) == []


async def test_a_late_reset_drops_reruns_but_not_later_messages(inbox: InboxStore, turns: TurnStore) -> None:
    await inbox.accept(inbound("one"))
    failed = await claim_turn(turns)
    await turns.end(failed, "failed")
    reset, since = inbound("reset"), inbound("since")
    await request_rerun(inbox, failed, "retry")
    await inbox.accept(since)
    assert len(cast(list[InboxMessage], await inbox.reset_session(reset, until=reset.sent_at))) == 1
    assert (await claim_turn(turns)).messages == (since,)


async def test_a_retry_has_the_text_edited_since_the_request(
    inbox: InboxStore, turns: TurnStore, service: SessionService, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("one"))
    turn = await claim_turn(turns)
    await append_events(service, turn, user_event("one"))
    await turns.end(turn, "failed")
    await request_rerun(inbox, turn, "retry")
    await inbox.edit_message(turn.newest_message.event_key, "two")
    rerun = await claim_turn(turns)
    assert (rerun.kind, rerun.newest_message.text) == ("revise", "two")
    assert await list_stored_texts(database) == []


async def test_a_turn_keeps_the_model_of_its_start(
    inbox: InboxStore, turns: TurnStore, service: SessionService, database: FailingDatabase
) -> None:
    turn = await create_answered_turn(inbox, turns, service, "one")
    assert turn.model is None
    async with database.write() as connection:
        await connection.execute(sa.text("UPDATE sessions SET model = 'openai/other'"))
    await request_rerun(inbox, turn)
    rerun = await claim_turn(turns)
    assert rerun.model == "openai/other"
    async with database.write() as connection:
        await connection.execute(sa.text("UPDATE sessions SET model = NULL"))
    await turns._lease.release()
    other = await create_turn_store(database)
    assert (await claim_turn(other)).model == "openai/other"
    async with database.read() as connection:
        models = (await connection.execute(sa.select(turns_table.c.model).order_by(turns_table.c.created_at))).scalars()
        assert list(models) == [None, "openai/other"]
