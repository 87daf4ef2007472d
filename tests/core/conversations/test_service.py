"""Stops, models, recent sessions and messages of bots."""

import asyncio
from typing import Any

import pytest

from core.conversations.service import ConversationService
from core.inbox.store import InboxStore
from core.sessions import resume
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.turns.cancel import StopResult
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from core.turns.worker import Worker
from tests.core.conftest import MODELS, FailingDatabase, claim_turn
from tests.fixtures.inbox_messages import inbound


def make_conversations(database: FailingDatabase, turns: TurnStore) -> ConversationService:
    return ConversationService(database, turns, Worker(turns), budget=1000)


@pytest.fixture
def conversations(database: FailingDatabase, turns: TurnStore) -> ConversationService:
    return make_conversations(database, turns)


async def accept_and_claim(inbox: InboxStore, turns: TurnStore, text: str = "hello", **kwargs: Any) -> Turn:
    await inbox.accept(inbound(text, **kwargs))
    return await claim_turn(turns)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_stop_and_a_claim_of_the_same_turn_do_not_deadlock(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await accept_and_claim(inbox, turns, "newer", sent_at=2.0)
    await inbox.accept(older := inbound("older", sent_at=1.0))
    is_claiming, go_on, reopen = asyncio.Event(), asyncio.Event(), resume.resume_run

    async def slow(*args: Any) -> None:
        is_claiming.set()
        await go_on.wait()
        await reopen(*args)

    monkeypatch.setattr("core.turns.claims.resume_run", slow)
    async with asyncio.TaskGroup() as both:
        claiming = both.create_task(turns.claim(10))
        await is_claiming.wait()
        stopping = both.create_task(conversations.stop_session(turn.session_id, author=None))
        await asyncio.sleep(0.1)  # the stop waits for the row lock of the claim
        go_on.set()
    assert [one.id for one in claiming.result()] == [turn.id]
    assert stopping.result() == StopResult(turn.id, (older,))
    assert await turns.list_owned() == {turn.id: CancelReason.STOP}


async def test_a_stopped_retry_can_be_requested_again(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    turn = await accept_and_claim(inbox, turns)
    await turns.end(turn, "failed")
    await inbox.request_rerun(turn.id, author="ada", kind="retry")
    halt = await conversations.stop_session("place:1", author="ada")
    assert halt is not None
    assert len(halt.dropped_messages) == 1
    assert await turns.claim(10) == []
    await inbox.request_rerun(turn.id, author="ada", kind="retry")
    assert (await claim_turn(turns)).origin == turn.id


async def test_a_chosen_model_stays_after_a_reset(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService, database: FailingDatabase
) -> None:
    assert await conversations.choose_model("place:1", "openai/other", place="place")
    assert not await conversations.choose_model("place:1", "openai/none", place="place")
    assert await conversations.get_model("place:1") == "openai/other"
    turn = await accept_and_claim(inbox, turns)
    assert turn.model == "openai/other"
    await inbox.reset_session(inbound("reset"))
    assert (await conversations.get_status("place:1")).model == "openai/other"
    conversations.agents = turns.agents = AgentRouter("app", {"app": AgentProfile("app", MODELS[:1])})
    assert await conversations.get_model("place:1") == MODELS[0]
    conversations.agents = turns.agents = AgentRouter("app", {"app": AgentProfile("app", MODELS)})
    assert await conversations.choose_model("place:1", None, place="place")
    assert await conversations.get_model("place:1") == MODELS[0]


async def test_concurrent_first_choices_create_the_session_once(
    conversations: ConversationService, inbox: InboxStore
) -> None:
    choices = (conversations.choose_model("place:1", "openai/other", place="place") for _ in range(5))
    await asyncio.gather(*choices, inbox.accept(inbound()))
    assert await conversations.get_model("place:1") == "openai/other"


async def test_recent_sessions_are_listed_with_their_first_words(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    for session, text, author in (
        ("place:1", "the first\n  thread", "ada"),
        ("place:2", "a " * 60, "grace"),
        ("place:2", "me too", "ada"),
        ("place:3", "gone", "ada"),
        ("place:4", "not hers", "grace"),
        ("other:5", "elsewhere", "ada"),
    ):
        await inbox.accept(inbound(text, session=session, author=author))
    await inbox.reset_session(inbound("reset", session="place:3"))
    recent = await conversations.list_recent("place", "ada", 10)
    assert [one.session_id for one in recent] == ["place:2", "place:1"]
    assert recent[1].preview == "the first thread"
    assert recent[0].preview == f"{'a ' * 39}a…"
    assert recent[0].at > recent[1].at
    assert [one.session_id for one in await conversations.list_recent("place", "ada", 1)] == ["place:2"]


async def test_bot_messages_since_the_last_person_are_counted(
    conversations: ConversationService, inbox: InboxStore
) -> None:
    assert await conversations.count_newest_bot_messages("place:1", 9) == 0
    for author, in_a_row in (("bot:B1", 1), ("U1", 0), ("bot:B1", 1), ("bot:B2", 2), ("bot:B1", 3)):
        await inbox.accept(inbound(author=author))
        assert await conversations.count_newest_bot_messages("place:1", 9) == in_a_row
    assert await conversations.count_newest_bot_messages("place:1", 2) == 2
