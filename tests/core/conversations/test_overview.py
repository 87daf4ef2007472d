"""Operators' overview of workers, turns, sessions and platforms, with remedies."""

import time
from typing import Any

import pytest
import sqlalchemy as sa

from bot.monitoring.diagnostics import SILENT_PLATFORM_SECONDS, Diagnosis, find_problems
from core.conversations.overview import get_overview, list_sessions
from core.conversations.turn_report import TurnReports
from core.inbox.store import InboxStore
from core.store.schema import human_requests, messages, platforms
from core.store.schema import inbox as inbox_table
from core.store.schema import turns as turns_table
from core.store.turn_states import EndState
from core.turns.store import TurnStore
from core.usage.meter import ModelCall
from core.usage.prices import Prices
from core.usage.spending_ledger import SpendingStore
from tests.core.conftest import FailingDatabase, complete_turn
from tests.fixtures.inbox_messages import inbound


async def run(database: FailingDatabase, statement: Any) -> None:
    async with database.write() as connection:
        await connection.execute(statement)


async def list_problems(database: FailingDatabase, *, holder: str | None = "7") -> list[Diagnosis]:
    overview = await get_overview(database, Prices())
    return list(find_problems(overview, holder=holder, time_limit=600, platforms=["slack"]))


async def test_turns_are_listed_newest_first_by_what_is_asked_for(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for number, author in enumerate(("ada", "grace", "ada")):
        await inbox.accept(inbound(session=f"place:{number}", author=author))
        (turn,) = await turns.claim(1)
        if number < 2:
            await complete_turn(turns, turn)
    reports = TurnReports(database, Prices())
    everything = await reports.list(limit=10)
    assert [turn.session for turn in everything] == ["place:2", "place:1", "place:0"]
    assert [list(turn.authors) for turn in everything] == [["ada"], ["grace"], ["ada"]]
    assert len(await reports.list(limit=2)) == 2
    assert [turn.session for turn in await reports.list(limit=9, state="running")] == ["place:2"]
    assert [turn.session for turn in await reports.list(limit=9, author="grace")] == ["place:1"]
    assert [turn.session for turn in await reports.list(limit=9, session="place:1")] == ["place:1"]
    assert await reports.list(limit=9, session="place_") == []
    assert await reports.list(limit=9, since=time.time() + 60) == []
    listed = await list_sessions(database, limit=2)
    assert [(one.id, one.people, one.messages, bool(one.running)) for one in listed] == [
        ("place:2", 1, 1, True),
        ("place:1", 1, 1, False),
    ]
    assert [session.id for session in await list_sessions(database, limit=9, author="grace")] == ["place:1"]


async def test_each_problem_is_listed_with_a_remedy(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    assert await list_problems(database) == []
    await inbox.accept(inbound(session="place:1"))
    (turn,) = await turns.claim(1)
    assert await list_problems(database) == []
    row = turns_table.c.id == turn.id
    for age, kind in ((120, "slow"), (700, "stuck")):
        await run(database, sa.update(turns_table).where(row).values(created_at=time.time() - age))
        (finding,) = await list_problems(database)
        assert (finding.kind, finding.subject) == (kind, turn.id)
        assert f"parley cancel {turn.id}" in finding.remedy
    await run(database, sa.update(turns_table).where(row).values(owner="nobody"))
    assert [finding.kind for finding in await list_problems(database)] == ["stuck"]
    await run(database, sa.update(turns_table).where(row).values(created_at=time.time(), owner=turns.worker_id))

    await run(database, sa.insert(platforms).values(name="slack", watermark=time.time() - SILENT_PLATFORM_SECONDS - 60))
    await run(database, sa.insert(platforms).values(name="console", watermark=1.0))
    assert [(finding.kind, finding.subject) for finding in await list_problems(database)] == [("disconnected", "slack")]
    await run(database, sa.delete(platforms))

    await turns.end(turn, "failed", error="ProviderAuthError: openai says 401")
    (finding,) = await list_problems(database)
    assert (finding.kind, finding.subject) == ("failing", turn.id)
    assert "parley check" in finding.remedy

    await inbox.accept(inbound(session="place:2", sent_at=1.0))
    async with database.write() as connection:
        await connection.execute(sa.text("UPDATE inbox SET accepted_at = accepted_at - 60 WHERE turn IS NULL"))
    assert [finding.kind for finding in await list_problems(database)] == ["waiting", "failing"]

    await turns._lease.release()
    assert next(finding.kind for finding in await list_problems(database, holder=None)) == "dead"


async def test_a_report_combines_all_rows_of_a_turn(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    first, second = inbound(author="ada"), inbound(author="grace")
    await inbox.accept(first)
    await inbox.accept(second)
    (turn,) = await turns.claim(1)
    history = {"messages": 1, "tokens": 5, "budget": 100, "limit": "tokens", "newest_id": 2}
    for role in ("user", "assistant", "user"):
        message_row = {
            "session": turn.session_id,
            "generation": 1,
            "role": role,
            "content": "x",
            "tokens": 1,
            "tool_calls": [],
        }
        await run(database, sa.insert(messages).values(**message_row, created_at=1.0))
    reports = TurnReports(database, Prices())
    running = await reports.get(turn.id)
    assert running is not None
    assert (running.state, running.run_record, running.duration_seconds) == ("running", None, None)

    await turns.save_answer(turn, "the answer", {"input": 3, "output": 4}, {"history": history})
    requests = {
        "id": "a1", "kind": "approval", "drafts": {},
        "turn": turn.id, "session": turn.session_id, "generation": 1, "run": "r",
        "call_id": "c", "tool_call_id": "f", "tool": "pay", "arguments": {}, "arguments_hash": "",
        "hint": "", "authors": [], "deciders": [], "may_allow_always": False,
        "secret_paths": [], "tool_hash": "", "speakers": [],
        "answer_authors": [], "requested_at": 1.0, "expires_at": 2.0, "chunks": [],
        "decision": "approved", "decided_by_name": "Ada", "decided_at": 3.0,
    }  # fmt: skip
    await run(database, sa.insert(human_requests).values(**requests))
    await turns.save_message_ids(turn, ["m1", "m2"])
    await turns.end(turn, "done")
    account = await reports.get(turn.id)
    assert account is not None
    assert (account.authors, account.messages) == ({"ada": "", "grace": ""}, 2)
    assert account.usage == {"input": 3, "output": 4}
    assert account.run_record is not None
    assert account.run_record.history is not None
    assert account.omitted_messages == 1  # of two messages at that time
    assert [(approval.tool, approval.verdict, approval.decider) for approval in account.approvals] == [
        ("pay", "approved", "Ada")
    ]
    assert (account.reruns, account.is_reset, account.app) == ((), False, "app")

    assert await reports.find_turn_ids(turn.id[:6], 5) == [turn.id]
    assert await reports.find_turn_ids("%", 5) == []
    place = {"session_id": turn.session_id, "place": ""}
    assert await reports.find_newest_turn(**place, author="grace") == turn.id
    assert await reports.find_newest_turn(**place, author="eve") is None
    assert await reports.find_newest_turn(**place, author=None) == turn.id
    assert await reports.find_turn_of_message(turn.session_id, "m2", "none") == turn.id
    assert await reports.find_turn_of_message("elsewhere", "m2", "none") is None
    assert await reports.find_turn_of_message("elsewhere", "m9", first.event_key) == turn.id


async def test_a_rerun_has_waited_since_it_was_requested(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    (first,) = await turns.claim(1)
    await turns.save_answer(first, "the answer", {})
    await complete_turn(turns, first)
    await run(database, sa.update(inbox_table).values(accepted_at=time.time() - 600))
    await inbox.request_rerun(first.id, author=first.newest_message.author, kind="regenerate")
    (rerun,) = await turns.claim(1)
    reports = TurnReports(database, Prices())
    waited = {report.id: report.wait_seconds for report in await reports.list(limit=2)}
    assert waited[first.id] == pytest.approx(600, abs=5)
    assert waited[rerun.id] < 5


async def test_authors_have_their_last_known_names(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound(session="slack:T:C", author="ada"))
    (turn,) = await turns.claim(1)
    turn.meter.author, turn.meter.author_name = "slack:ada", "Ada"
    turn.meter.add(ModelCall("m", input=1))
    await turns.save_answer(turn, "the answer", turn.meter.to_json())
    await turns.end(turn, "done")
    await SpendingStore(database, Prices()).record_ended_turns()
    (report,) = await TurnReports(database, Prices()).list(limit=1)
    assert report.authors == {"ada": "Ada"}


async def test_a_failed_turn_keeps_its_run_record_and_a_reset_one_does_not(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    reports = TurnReports(database, Prices())
    states: tuple[EndState, ...] = ("failed", "cancelled")
    for state in states:
        await inbox.accept(inbound())
        (turn,) = await turns.claim(1)
        await turns.end(turn, state, error="x", run_record={"seconds": 2.5})
        account = await reports.get(turn.id)
        assert account is not None
        assert account.run_record is not None
        assert account.run_record.seconds == 2.5
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await turns.save_answer(turn, "the answer", {}, {"seconds": 1.0})
    await inbox.reset_session(inbound(text="reset"))
    await turns.end(turn, "cancelled", run_record={"seconds": 1.0})
    async with database.read() as connection:
        records = (await connection.execute(sa.select(turns_table.c.run_record))).scalars().all()
    assert set(records) == {None}
