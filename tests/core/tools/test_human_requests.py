"""Stored requests to users: approvals and questions."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from core.conversations.service import ConversationService
from core.errors import SurfaceError, TurnLostError, UnreadableRowError
from core.inbox.store import InboxStore
from core.messages.identity import AUTHOR, EVERYONE, OTHERS, User
from core.privacy.redaction import is_only_author
from core.store.schema import human_requests as table
from core.store.schema import turns as turns_table
from core.tools.adk_confirmations import ConfirmationRequest
from core.tools.adk_requests import Decision, QuestionRequest
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import Approval, HumanRequest, Question, Verdict
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from core.turns.worker import Worker
from core.usage.user_rate_limits import RateLimit, UserRateLimiter
from tests.core.conftest import FailingDatabase, count_rows, create_turn_store
from tests.fixtures.inbox_messages import inbound

ADA, BOB = User("ada", "Ada"), User("bob", "Bob", frozenset({"r1"}))


def make_approvals(database: FailingDatabase, turns: TurnStore, **kwargs: Any) -> HumanRequestService:
    return HumanRequestService(database, turns, Worker(turns), **kwargs)


@pytest.fixture
def approvals(database: FailingDatabase, turns: TurnStore) -> HumanRequestService:
    return make_approvals(database, turns)


def make_request(number: int = 1, **kwargs: Any) -> ConfirmationRequest:
    return ConfirmationRequest("run", f"q{number}", f"c{number}", "pay", {"sum": number}, **kwargs)


async def create_turn_with_requests(
    inbox: InboxStore, turns: TurnStore, approvals: HumanRequestService, *asks: ConfirmationRequest
) -> Turn:
    """Return an ended turn with these stored requests; by default one."""
    await inbox.accept(inbound(author="ada"))
    (turn,) = await turns.claim(1)
    await approvals.save_answer(turn, "text", {}, asks or (make_request(),))
    await turns.end(turn, "done")
    return turn


async def create_expired_requests(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    """Store two sessions with one expired request each."""
    for session in ("one", "two"):
        await inbox.accept(inbound(author="ada", session=session))
        (turn,) = await turns.claim(1)
        await approvals.save_answer(turn, "text", {}, [make_request()])
        await turns.end(turn, "done")
    async with database.write() as connection:
        await connection.execute(sa.update(table).values(expires_at=1.0))


async def list_decisions(approvals: HumanRequestService, origin: str) -> list[Decision]:
    return [decision for decision in await approvals.list_decisions(origin) if isinstance(decision, Decision)]


async def test_the_first_decision_counts_on_all_workers_and_resumes_once(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    turn = await create_turn_with_requests(inbox, turns, approvals)
    (one,) = await approvals.list_of_turn(turn.id)
    others = [
        make_approvals(database, turns if database.is_sqlite else await create_turn_store(database)) for _ in range(3)
    ]
    verdicts: list[Verdict] = ["approved", "denied", "always", "denied"]
    workers = [approvals, *others]
    decided = await asyncio.gather(*(w.decide(one.id, ADA, v) for w, v in zip(workers, verdicts, strict=True)))
    (first,) = [found.request for found in decided if found.is_first]
    assert first is not None
    assert {found.request and found.request.verdict for found in decided} == {first.verdict}
    (next_,) = await turns.claim(5)
    assert (next_.kind, next_.run, next_.origin) == ("decision", "run", next_.id)
    assert next_.newest_message.event_key == f"decision:{one.id}"
    (decision,) = await list_decisions(approvals, next_.origin)
    assert (decision.call_id, decision.arguments_hash) == ("q1", make_request().arguments_hash)
    assert decision.is_allowed == (first.verdict != "denied")


async def test_an_expired_request_is_denied_once(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    turn = await create_turn_with_requests(inbox, turns, approvals, make_request(1), make_request(2))
    assert await approvals.expire() == []
    async with database.write() as connection:
        await connection.execute(sa.update(table).values(expires_at=1.0))
    one, _ = await approvals.list_of_turn(turn.id)
    decided = await approvals.decide(one.id, ADA, "approved")
    assert (decided.request and decided.request.verdict, decided.is_first) == ("expired", True)
    assert len(await approvals.expire()) == 1
    assert await approvals.expire() == []
    assert len(await turns.claim(5)) == 1


@pytest.mark.parametrize(
    ("approvers", "who"),
    [
        ((AUTHOR,), {"ada"}),
        ((OTHERS,), {"bob"}),
        ((EVERYONE,), {"ada", "bob"}),
        (("r1",), {"bob"}),
        (("ada", "r2"), {"ada"}),
        ((), set()),
    ],
)
def test_only_the_deciders_may_decide(approvers: tuple[str, ...], who: set[str]) -> None:
    approval = Approval(
        id="a",
        turn_id="t",
        session_id="s",
        tool="pay",
        arguments={},
        author_ids=frozenset({"ada"}),
        deciders=approvers,
        expires_at=0.0,
        message_ids=(),
        inbox_message=inbound(author="ada"),
        hint="",
        may_allow_always=True,
    )
    assert {person.id for person in (ADA, BOB) if approval.may_decide(person)} == who


async def test_a_worker_without_the_turn_stores_no_request(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    async with database.write() as connection:
        await connection.execute(sa.update(turns_table).values(claim_number=2))
    with pytest.raises(TurnLostError):
        await approvals.save_answer(turn, "text", {}, [make_request()])
    assert await count_rows(database, table) == 0


async def test_a_stopped_turn_stores_no_request(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    await inbox.accept(inbound(author="ada"))
    (turn,) = await turns.claim(1)
    async with database.write() as connection:
        await turns.request_cancel(connection, turn.session_id, CancelReason.STOP)
    assert await approvals.save_answer(turn, "text", {}, [make_request()]) == []
    await turns.end(turn, "cancelled", error=CancelReason.STOP)
    assert await count_rows(database, table) == 0


async def test_an_expired_approval_that_cannot_be_read_blocks_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    await create_expired_requests(inbox, turns, database, approvals)
    async with database.write() as connection:
        await connection.exec_driver_sql("UPDATE human_requests SET authors = '7' WHERE session = 'one'")
    assert [request.session_id for request in await approvals.expire()] == ["two"]


async def test_an_expired_request_that_cannot_be_shown_blocks_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    await create_expired_requests(inbox, turns, database, approvals)
    session_ids, both = list[str](), asyncio.Event()

    async def show(approval: HumanRequest) -> None:
        session_ids.append(approval.session_id)
        if len(session_ids) == 2:
            both.set()
        raise SurfaceError("the channel is archived")

    watching = asyncio.create_task(approvals.run_expiry(show))
    await asyncio.wait_for(both.wait(), 30)
    watching.cancel()
    await asyncio.wait([watching])
    assert sorted(session_ids) == ["one", "two"]


async def test_a_decision_is_retried_while_the_database_is_unavailable(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, approvals: HumanRequestService
) -> None:
    turn = await create_turn_with_requests(inbox, turns, approvals)
    (one,) = await approvals.list_of_turn(turn.id)
    database.failures = 2
    assert (await approvals.decide(one.id, ADA, "approved")).is_first


async def test_people_who_fill_in_one_form_keep_their_own_pages(
    inbox: InboxStore, turns: TurnStore, approvals: HumanRequestService
) -> None:
    await inbox.accept(inbound(author="ada"))
    (turn,) = await turns.claim(1)
    asked = QuestionRequest("run", "q1", "adk_request_input", {"message": "Which?"}, (EVERYONE,))
    (question,) = await approvals.save_answer(turn, "text", {}, [asked])
    assert isinstance(question, Question)
    people = [f"person{i}" for i in range(5)]
    await asyncio.gather(*(approvals.save_draft(question, person, {"page": person}) for person in people))
    await approvals.save_draft(question, "person0", {"page": "again"})
    stored = await approvals.get(question.id)
    assert isinstance(stored, Question)
    assert stored.drafts == {**{person: {"page": person} for person in people}, "person0": {"page": "again"}}
    await approvals.answer(question.id, ADA, "M")
    await approvals.save_draft(question, "person1", {"page": "late"})
    decided = await approvals.get(question.id)
    assert isinstance(decided, Question)
    assert (decided.answer, decided.drafts) == ("M", {})


@pytest.mark.parametrize("damage", ["7", '["x"]', "[" * 5000 + "]" * 5000])
async def test_an_unreadable_request_is_named_and_expires_with_the_others(
    inbox: InboxStore,
    turns: TurnStore,
    approvals: HumanRequestService,
    database: FailingDatabase,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create_expired_requests(inbox, turns, database, approvals)
    (one,), (two,) = [await approvals.list_open(session_id=session) for session in ("one", "two")]
    async with database.write() as connection:
        await connection.execute(
            sa.text("UPDATE human_requests SET arguments = :text WHERE id = :id"),
            {"text": damage, "id": one.id},
        )
    unreadable = f"row {one.id} of human_requests cannot be read"
    with pytest.raises(UnreadableRowError, match=unreadable):
        await approvals.get(one.id)
    assert [request.id for request in await approvals.expire()] == [two.id]
    assert caplog.text.count(unreadable) == 1
    assert await approvals.expire() == []
    assert [turn.session_id for turn in await turns.claim(2)] == ["two"]


HOURLY = UserRateLimiter(user=RateLimit(2, 3_600))


async def test_decisions_at_once_are_within_a_users_rate_limit(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    approvals, ids = make_approvals(database, turns, approvers=(EVERYONE,), rates=HOURLY), list[str]()
    for session in range(5):
        await inbox.accept(inbound(author="ada", session=f"place:{session}"))
        (turn,) = await turns.claim(1)
        ids += [approval.id for approval in await approvals.save_answer(turn, "text", {}, [make_request()])]
        await turns.end(turn, "done")
    decided = await asyncio.gather(*(approvals.decide(id_, BOB, "approved") for id_ in ids))
    assert sum(each.is_first for each in decided) == 2
    assert sum(each.limited is not None for each in decided) == 3
    assert len(await turns.claim(5)) == 2
    open_ids = {each.request.id for each in decided if each.limited and each.request}
    for id_ in open_ids:
        assert (await approvals.decide(id_, User("eve", "Eve"), "approved")).is_first == (id_ in list(open_ids)[:2])


async def test_a_reset_does_not_make_room_for_more_decisions(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    approvals = make_approvals(database, turns, approvers=(EVERYONE,), rates=HOURLY)
    for number in range(3):
        turn = await create_turn_with_requests(inbox, turns, approvals)
        (approval,) = await approvals.list_of_turn(turn.id)
        decided = await approvals.decide(approval.id, BOB, "approved")
        assert decided.is_first == (number < 2)
        await inbox.reset_session(inbound(author="ada"))


async def test_who_decides_is_neither_an_author_nor_the_last_to_write(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    approvals = make_approvals(database, turns, approvers=(EVERYONE,), rates=HOURLY)
    turn = await create_turn_with_requests(inbox, turns, approvals)
    (approval,) = await approvals.list_of_turn(turn.id)
    assert (await approvals.decide(approval.id, BOB, "denied")).is_first
    conversations = ConversationService(database, turns, Worker(turns), budget=1_000)
    reply = replace(inbound(author="ada", session=turn.session_id), sent_at=time.time() + 1)
    assert await conversations.is_for_bot(reply, follow="author")
    async with database.read() as connection:
        assert await is_only_author(connection, turn.session_id, "ada")
