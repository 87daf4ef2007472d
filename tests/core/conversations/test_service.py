"""Commands and buttons of users: stop, status, models, muting, ratings."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event

from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService, LatestTurn
from core.inbox.store import InboxStore
from core.messages.inbox_message import InboxMessage
from core.models.tokens import TokenCounter
from core.privacy.retention import DAY_SECONDS, CleanupService
from core.sessions import resume
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.resume import correction_run_id
from core.sessions.service import SessionService
from core.store.schema import feedback as feedback_table
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.turns.cancel import StopResult, StopTurnResult
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from core.turns.worker import Worker
from core.usage.prices import Prices
from tests.core.conftest import MODELS, FailingDatabase, complete_turn, create_turn_store
from tests.core.sessions.events import call_event, model_event, response_event, user_event
from tests.fixtures.inbox_messages import inbound


def make_conversations(database: FailingDatabase, turns: TurnStore) -> ConversationService:
    return ConversationService(database, turns, Worker(turns), budget=1000)


@pytest.fixture
def conversations(database: FailingDatabase, turns: TurnStore) -> ConversationService:
    return make_conversations(database, turns)


@pytest.fixture
def service(database: FailingDatabase, tmp_path: Path) -> SessionService:
    return SessionService(database, TokenCounter(tmp_path))


async def claim_turn(turns: TurnStore) -> Turn:
    (turn,) = await turns.claim(10)
    return turn


async def accept_and_claim(inbox: InboxStore, turns: TurnStore, text: str = "hello", **kwargs: Any) -> Turn:
    await inbox.accept(inbound(text, **kwargs))
    return await claim_turn(turns)


async def append_events(service: SessionService, turn: Turn, events: Sequence[Event]) -> None:
    place = turn.newest_message.place
    session = await service.get_session(app_name="app", user_id=place, session_id=turn.session_id)
    assert session is not None
    for event in events:
        run = event.invocation_id or turn.origin
        await service.append_event(session, event.model_copy(update={"invocation_id": run}))


# Stops


async def test_a_stop_ends_the_running_turn_on_any_worker_and_drops_waiting_messages(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService, database: FailingDatabase
) -> None:
    turn = await accept_and_claim(inbox, turns)
    waiting, elsewhere = inbound("later"), inbound(session="place:2")
    for message in (waiting, elsewhere):
        await inbox.accept(message)
    other = make_conversations(database, await create_turn_store(database))
    assert await other.stop_session("place:1", author=None) == StopResult(turn.id, (waiting,))
    assert await other.stop_session("place:1", author=None) == StopResult(turn.id)
    if not database.is_sqlite:  # SQLite has one process, so no other worker owns the turn
        assert await turns.list_owned() == {turn.id: CancelReason.STOP}
    await turns.end(turn, "cancelled", error=CancelReason.STOP)
    assert not await conversations.stop_session("place:1", author=None)
    assert [next_one.newest_message for next_one in await turns.claim(10)] == [elsewhere]


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


async def test_a_stop_by_one_person_ends_only_their_own_turns(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    turn = await accept_and_claim(inbox, turns)
    theirs = inbound("theirs", author="grace")
    await inbox.accept(theirs)
    assert await conversations.stop_session("place:1", author="linus") == StopResult()
    assert await conversations.stop_session("place:1", author="grace") == StopResult(None, (theirs,))
    assert (
        await conversations.stop_session("place:1", author="ada", until=turn.newest_message.sent_at - 1) == StopResult()
    )
    assert await conversations.stop_session("place:1", author="ada", until=turn.newest_message.sent_at) == StopResult(
        turn.id
    )


async def test_a_turn_with_a_message_after_the_stop_continues(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    before, after = inbound("before"), inbound("after")
    for message in (before, after):
        await inbox.accept(message)
    turn = await claim_turn(turns)
    assert turn.messages == (before, after)
    assert await conversations.stop_session("place:1", author="ada", until=before.sent_at) == StopResult()
    assert await conversations.stop_session("place:1", author="ada", until=after.sent_at) == StopResult(turn.id)


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


async def test_only_its_author_stops_a_turn_and_only_while_it_runs(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService, database: FailingDatabase
) -> None:
    turn = await accept_and_claim(inbox, turns)
    assert await conversations.stop_turn(turn.id, "grace") is StopTurnResult.NOT_OWNER
    assert await conversations.stop_turn("nothing", "ada") is StopTurnResult.NOT_RUNNING
    database.failures = 2
    pressed = await asyncio.gather(*(conversations.stop_turn(turn.id, "ada") for _ in range(5)))
    assert set(pressed) == {StopTurnResult.STOPPED}
    assert await turns.list_owned() == {turn.id: CancelReason.STOP}
    await turns.save_answer(turn, "text", {})  # its worker has not seen the stop yet
    assert await conversations.stop_turn(turn.id, "ada") is StopTurnResult.NOT_RUNNING
    assert await conversations.stop_session("place:1", author=None) == StopResult()


async def test_the_next_worker_of_a_stopped_turn_gets_the_cancellation(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    turn = await accept_and_claim(inbox, turns)
    await turns.hand_back(turn)
    assert await conversations.stop_turn(turn.id, "ada") is StopTurnResult.STOPPED
    assert (await claim_turn(turns)).cancel == CancelReason.STOP


async def test_a_turn_that_a_reset_cancels_cannot_be_stopped(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    turn = await accept_and_claim(inbox, turns)
    await inbox.reset_session(inbound("reset"))
    assert await conversations.stop_turn(turn.id, "ada") is StopTurnResult.NOT_RUNNING
    assert await turns.list_owned() == {turn.id: CancelReason.RESET}


# Status and models


async def test_the_status_covers_messages_since_the_last_reset(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService, service: SessionService
) -> None:
    assert (await conversations.get_status("place:1")).model == MODELS[0]
    turn = await accept_and_claim(inbox, turns)
    await append_events(
        service, turn, [user_event("hello", timestamp=5.0), call_event("c"), response_event("c"), model_event("hi")]
    )
    await turns.save_answer(turn, "hi", {"input": 100, "output": 20, "thinking": 3, "cached": 90})
    await turns.end(turn, "done")
    second = await accept_and_claim(inbox, turns)
    await inbox.accept(inbound())
    status = await conversations.get_status("place:1")
    assert (status.since, status.messages, status.used_tokens, status.budget) == (5.0, 2, 123, 1000)
    assert (status.is_running, status.waiting, status.is_muted) == (True, 1, False)
    assert status.history_tokens > 0
    await inbox.reset_session(inbound("reset"))
    await turns.end(second, "cancelled")
    fresh = await conversations.get_status("place:1")
    assert (fresh.since, fresh.messages, fresh.used_tokens, fresh.history_tokens) == (None, 0, 0, 0)
    assert (fresh.is_running, fresh.waiting) == (False, 0)


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


# Messages for the bot


class SharedSession:
    """Session of several users, whose messages to the bot are put into the inbox."""

    def __init__(self, inbox: InboxStore, conversations: ConversationService) -> None:
        self._inbox = inbox
        self.conversations = conversations

    async def receive(self, author: str, *, mentions_bot: bool = False, follow: Any = "author", **kwargs: Any) -> bool:
        return await self.receive_message(inbound(author=author, **kwargs), mentions_bot=mentions_bot, follow=follow)

    async def receive_message(
        self, message: InboxMessage, *, mentions_bot: bool = False, follow: Any = "author"
    ) -> bool:
        is_for_bot = mentions_bot or await self.conversations.is_for_bot(message, follow=follow)
        if is_for_bot:
            await self._inbox.accept(message)
        return is_for_bot


@pytest.fixture
def shared_session(inbox: InboxStore, conversations: ConversationService) -> SharedSession:
    return SharedSession(inbox, conversations)


async def test_the_last_author_needs_no_mention_until_another_person_speaks(
    shared_session: SharedSession, database: FailingDatabase
) -> None:
    assert not await shared_session.receive("ada")
    assert await shared_session.receive("ada", mentions_bot=True)
    assert await shared_session.receive("ada")
    assert not await shared_session.receive("grace", text="a secret")
    assert not await shared_session.receive("grace")
    assert not await shared_session.receive("ada")
    assert await shared_session.receive("grace", mentions_bot=True)
    assert not await shared_session.receive("ada")
    assert not await shared_session.receive("grace")
    assert await shared_session.receive("ada", mentions_bot=True)
    assert await shared_session.receive("ada")
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(inbox_table))).all()
    assert [row.message for row in rows if row.outcome == "unaddressed"] == [None, None]
    assert "secret" not in str(rows)


async def test_repeated_and_late_deliveries_change_nothing(
    shared_session: SharedSession, database: FailingDatabase
) -> None:
    first, follow_up, aside, late = inbound(), inbound(), inbound(author="grace"), inbound()
    assert await shared_session.receive_message(first, mentions_bot=True)
    assert await shared_session.receive_message(follow_up)
    for _ in range(2):
        assert not await shared_session.receive_message(aside)
    assert await shared_session.receive_message(follow_up)
    assert not await shared_session.receive_message(late)
    between = replace(inbound(), sent_at=aside.sent_at - 0.5)
    assert await shared_session.receive_message(between)
    async with database.read() as connection:
        assert len((await connection.execute(sa.select(inbox_table))).all()) == 4


async def test_a_session_with_only_unaddressed_messages_is_not_recent(shared_session: SharedSession) -> None:
    await shared_session.receive("grace", mentions_bot=True, session="place:2")
    await shared_session.receive("ada", mentions_bot=True)
    await shared_session.receive("grace")
    assert [one.session_id for one in await shared_session.conversations.list_recent("place", "grace", 9)] == [
        "place:2"
    ]


async def test_mentions_are_always_answered_and_other_messages_as_configured(shared_session: SharedSession) -> None:
    assert not await shared_session.receive("ada", follow="everyone")
    assert await shared_session.receive("ada", follow="never", mentions_bot=True)
    assert not await shared_session.receive("ada", follow="never")
    assert await shared_session.receive("grace", follow="everyone")


async def test_a_muted_bot_answers_mentions_only(
    shared_session: SharedSession, conversations: ConversationService
) -> None:
    assert not await conversations.set_muted("place:1", True)
    await shared_session.receive("ada", mentions_bot=True)
    assert await conversations.set_muted("place:1", True)
    for follow in ("author", "everyone"):
        assert not await shared_session.receive("ada", follow=follow)
    assert await shared_session.receive("ada", mentions_bot=True)
    assert (await conversations.get_status("place:1")).is_muted
    await conversations.set_muted("place:1", False)
    assert await shared_session.receive("ada")


# Replies and ratings


async def test_the_latest_turn_of_a_reply_includes_its_reruns(
    inbox: InboxStore, turns: TurnStore, conversations: ConversationService
) -> None:
    turn = await accept_and_claim(inbox, turns)
    await turns.save_message_ids(turn, ["m1"])
    expected = LatestTurn(
        turn_id=turn.id,
        origin=turn.id,
        session_id="place:1",
        state="running",
        text=None,
        message_ids=("m1",),
        inbound=turn.newest_message,
        is_revised=False,
    )
    assert await conversations.get_latest_turn(turn.id) == expected
    await complete_turn(turns, turn)
    await inbox.edit_message(turn.newest_message.event_key, "edited")
    expected = replace(expected, state="done", text="the answer", is_revised=True)
    assert await conversations.get_latest_turn(turn.id) == expected
    await inbox.request_rerun(turn.id, author="ada", kind="revise")
    reclaimed = await claim_turn(turns)
    latest = await conversations.get_latest_turn(turn.id)
    assert latest is not None
    assert (latest.turn_id, latest.state, latest.inbound.text) == (reclaimed.id, "running", "edited")
    assert not latest.is_revised
    await complete_turn(turns, reclaimed)
    await inbox.delete_message(turn.newest_message.event_key)
    latest = await conversations.get_latest_turn(reclaimed.id)
    assert latest is not None
    assert (latest.inbound.text, latest.inbound.address) == ("", turn.newest_message.address)
    await inbox.reset_session(inbound("reset"))
    assert await conversations.get_latest_turn(reclaimed.id) is None
    assert await conversations.get_latest_turn("nothing") is None


async def test_a_transcript_has_authors_times_tools_and_ratings(
    inbox: InboxStore,
    turns: TurnStore,
    conversations: ConversationService,
    service: SessionService,
    database: FailingDatabase,
) -> None:
    assert await conversations.export_session("place:1", "md", Prices()) == ""
    opinions = FeedbackStore(database)
    turn = await accept_and_claim(inbox, turns)
    steps = [
        call_event("c", name="look", timestamp=61.0),
        response_event("c", name="look"),
        model_event("**No.**", timestamp=62.0),
    ]
    wrong = user_event("[System: no such agent]", invocation_id=correction_run_id(turn.id))
    await append_events(service, turn, [user_event("Ada: Is it?", timestamp=60.0), wrong, *steps])
    await complete_turn(turns, turn)
    await opinions.save_feedback(turn.id, "ada", "bad")
    await inbox.request_rerun(turn.id, author="ada", kind="regenerate")
    reclaimed = await claim_turn(turns)
    await append_events(
        service, reclaimed, [call_event("c", name="look", timestamp=63.0), model_event("Yes.", timestamp=64.0)]
    )
    await complete_turn(turns, reclaimed)
    for author in ("ada", "grace"):
        await opinions.save_feedback(reclaimed.id, author, "good")
    assert await conversations.export_session("place:1", "md", Prices()) == (
        "# Conversation `place:1`\n\n"
        "## Question, 1970-01-01 00:01:00 UTC\n\nAda: Is it?\n\n"
        "## bot, 1970-01-01 00:01:03 UTC\n\n*Used `look`:* `{}`\n\n"
        "## bot, 1970-01-01 00:01:04 UTC\n\nYes.\n\n"
        "*Feedback: 2 good*\n"
    )
    await inbox.reset_session(inbound("reset"))
    assert await conversations.export_session("place:1", "md", Prices()) == ""


async def test_the_newest_rating_counts_and_is_deleted_with_its_turn(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    opinions = FeedbackStore(database)

    async def list_ratings() -> set[tuple[str, str]]:
        async with database.read() as connection:
            rows = await connection.execute(sa.select(feedback_table.c.author, feedback_table.c.rating))
            return {(row.author, row.rating) for row in rows}

    assert not await opinions.save_feedback("nothing", "ada", "good")
    turn = await accept_and_claim(inbox, turns)
    await complete_turn(turns, turn)
    for author, verdict in (("ada", "good"), ("grace", "good"), ("ada", "bad")):
        assert await opinions.save_feedback(turn.id, author, verdict)  # type: ignore[arg-type]  # a literal type
    assert await list_ratings() == {("ada", "bad"), ("grace", "good")}
    await inbox.reset_session(inbound("reset"))
    assert await list_ratings() == set()
    assert not await opinions.save_feedback(turn.id, "ada", "good")
    turn = await accept_and_claim(inbox, turns)
    await complete_turn(turns, turn)
    await opinions.save_feedback(turn.id, "ada", "good")
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(finished_at=time.time() - 31 * DAY_SECONDS, cost=0))
    await CleanupService(database, days=30).delete_batch()
    assert await list_ratings() == set()


async def test_bot_messages_since_the_last_person_are_counted(
    conversations: ConversationService, inbox: InboxStore
) -> None:
    assert await conversations.count_newest_bot_messages("place:1", 9) == 0
    for author, in_a_row in (("bot:B1", 1), ("U1", 0), ("bot:B1", 1), ("bot:B2", 2), ("bot:B1", 3)):
        await inbox.accept(inbound(author=author))
        assert await conversations.count_newest_bot_messages("place:1", 9) == in_a_row
    assert await conversations.count_newest_bot_messages("place:1", 2) == 2
