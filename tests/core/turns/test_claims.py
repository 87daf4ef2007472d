"""Claims of turns: one transaction takes all waiting messages of a session, once."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from core.inbox.store import InboxStore
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.lifecycle import lock_session_row
from core.store.schema import inbox as inbox_table
from core.store.schema import sessions
from core.store.schema import turns as turns_table
from core.turns import claims
from core.turns.store import TurnStore
from core.turns.turn import Turn
from tests.core.conftest import MODELS, FailingDatabase, complete_turn, create_turn_store
from tests.fixtures.inbox_messages import inbound


async def test_a_claim_begins_the_next_turn_of_each_session(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for number in range(3):
        await inbox.accept(inbound(session=f"place:{number}"))
    async with database.write() as connection:
        chosen = sa.update(sessions).where(sessions.c.id == "place:1").values(model="m", agent="bot")
        await connection.execute(chosen)
    turns.agents = AgentRouter("app", {"bot": AgentProfile("bot", MODELS, selectable_at=None)})
    claimed = await turns.claim(10)
    async with database.read() as connection:
        names = ("id", "session", "generation", "kind", "origin", "model", "agent", "attempt", "state")
        rows = await connection.execute(sa.select(*(turns_table.c[name] for name in names)).order_by("created_at"))
        assert [tuple(row) for row in rows] == [
            (turn.id, turn.session_id, 1, "message", turn.id, turn.model, turn.agent, 1, "running") for turn in claimed
        ]
    assert [(turn.model, turn.agent) for turn in claimed] == [(None, "app"), ("m", "bot"), (None, "app")]
    assert [turn.session_id for turn in claimed] == [f"place:{number}" for number in range(3)]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_claim_skips_a_session_that_another_transaction_has_locked(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(edited := inbound("what was said", session="p:1"))
    await inbox.accept(inbound(session="p:2"))
    async with database.write() as connection:
        await lock_session_row(connection, "p:1")
        async with asyncio.timeout(10):
            (other,) = await turns.claim(10)
    assert other.session_id == "p:2"
    await inbox.edit_message(edited.event_key, "what was meant")
    (turn,) = await turns.claim(10, running=[other.id])
    assert [message.text for message in turn.messages] == ["what was meant"]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_workers_that_claim_while_messages_come_claim_each_message_once(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    messages = [inbound(session=f"p:{number % 3}") for number in range(60)]
    claimed = list[Turn]()

    async def run_worker(worker: TurnStore) -> None:
        while sum(len(turn.messages) for turn in claimed) < len(messages):
            for turn in await worker.claim(2):
                claimed.append(turn)
                await complete_turn(worker, turn)

    async def accept() -> None:
        for message in messages:
            await inbox.accept(message)

    workers = [turns, *[await create_turn_store(database) for _ in range(3)]]
    async with asyncio.timeout(60):
        await asyncio.gather(accept(), *map(run_worker, workers))
    for session in ("p:0", "p:1", "p:2"):
        keys = [message.event_key for turn in claimed if turn.session_id == session for message in turn.messages]
        assert keys == [message.event_key for message in messages if message.session_id == session]


async def test_a_turn_that_cannot_begin_claims_no_message(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await inbox.accept(inbound(session="p:2"))
    with monkeypatch.context() as same_id:
        same_id.setattr(claims, "new_turn_id", lambda: turn.id)
        assert await turns.claim(1, running=[turn.id]) == []
    async with database.read() as connection:
        waiting = sa.select(inbox_table.c.session).where(inbox_table.c.turn.is_(None))
        assert (await connection.execute(waiting)).scalars().all() == ["p:2"]
    (other,) = await turns.claim(1, running=[turn.id])
    assert other.session_id == "p:2"


async def test_a_cancelled_claim_takes_nothing_or_all(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    """Check that a cancelled claim separates no turn from its messages.

    The next claim returns both.
    """
    for number in range(12):
        session = f"place:{number}"
        await inbox.accept(inbound(session=session))
        claiming = asyncio.create_task(turns.claim(1))
        for _ in range(number):
            await asyncio.sleep(0.001 * number)
        claiming.cancel()
        await asyncio.wait([claiming])
        claimed = [] if claiming.cancelled() else claiming.result()
        async with asyncio.timeout(30):
            while not claimed:  # the database may still be ending the cancelled transaction
                claimed = await turns.claim(1)
        (turn,) = claimed
        assert turn.session_id == session
        await turns.end(turn, "failed")


async def test_people_are_answered_before_entries_that_nobody_wrote(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for text, session in (("task 1", "p:1"), ("task 2", "p:1"), ("task 3", "p:2"), ("hello", "p:1"), ("you?", "p:1")):
        await inbox.accept(inbound(text, session=session))
    async with database.write() as connection:
        texts = inbox_table.c.message["text"].as_string()
        await connection.execute(sa.update(inbox_table).where(texts.startswith("task")).values(kind="schedule"))
    claimed = list[list[str]]()
    while new := await turns.claim(10, triggered_limit=1):
        for turn in new:
            claimed.append([message.text for message in turn.messages])
            await complete_turn(turns, turn)
    assert claimed == [["hello", "you?"], ["task 3"], ["task 1"], ["task 2"]]


async def test_turns_are_claimed_round_robin_over_people(inbox: InboxStore, turns: TurnStore) -> None:
    people = ["ada"] * 6 + ["grace"] * 2 + ["linus"]
    for number, author in enumerate(people):
        await inbox.accept(inbound(session=f"place:{number}", author=author))
    claimed = await turns.claim(4)
    for number in range(4):
        claimed += await turns.claim(1, running=[turn.id for turn in claimed])
        await inbox.accept(inbound(session=f"late:{number}", author="ada"))
    served = [turn.newest_message.author for turn in claimed]
    assert served == ["ada", "grace", "linus", "ada", "grace", "ada", "ada", "ada"]


@contextmanager
def record_queries(database: FailingDatabase) -> Iterator[list[tuple[str, Any]]]:
    """Yield a list to which each SELECT statement of the context is appended.

    Each entry is (SQL, parameters).
    """
    queries = list[tuple[str, Any]]()

    def record_query(_connection: Any, _cursor: Any, statement: str, parameters: Sequence[Any], *_kwargs: Any) -> None:
        if statement.startswith("SELECT"):
            queries.append((statement, parameters))

    engine = database.engine.sync_engine
    sa.event.listen(engine, "before_cursor_execute", record_query)
    try:
        yield queries
    finally:
        sa.event.remove(engine, "before_cursor_execute", record_query)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_messages_that_are_never_answered_slow_no_claim_down(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound())
    with record_queries(database) as queries:
        await turns.claim(1)
    plans = list[str]()
    async with database.read() as connection:
        for statement, parameters in queries:
            explained = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", tuple(parameters))
            plans += [row.detail for row in explained]
    assert any("ix_inbox_waiting" in plan for plan in plans)
    assert not [plan for plan in plans if "SCAN inbox" in plan or "ix_inbox_turn" in plan], plans


@pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)
async def test_a_claim_reads_no_more_messages_than_its_turns_answer(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    for session in ("p:1", "p:2"):
        await inbox.accept(inbound(session=session))
    async with database.write() as connection:
        row = dict(
            (await connection.execute(sa.select(inbox_table).where(inbox_table.c.session == "p:1"))).one()._mapping
        )
        copies = [
            row | {"id": 1000 + n, "event_key": f"copy {n}", "sent_at": row["sent_at"] + 1 + n} for n in range(3000)
        ]
        await connection.execute(sa.insert(inbox_table), copies)
    read = list[int]()
    list_candidates = claims._list_candidates

    def count_rows(rows: Sequence[sa.Row[Any]]) -> Any:
        read.append(len(rows))
        return list_candidates(rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "_list_candidates", count_rows)
        first, other = await turns.claim(10)
    assert read == [claims.MAX_MESSAGES + 1]
    assert [len(turn.messages) for turn in (first, other)] == [claims.MAX_MESSAGES, 1]


async def test_a_claim_opens_a_transaction_only_for_a_turn_to_claim(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    def refuse_transaction() -> None:
        raise AssertionError("nothing waits")

    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    await inbox.accept(inbound())  # waits for the turn of its session
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", refuse_transaction)
        assert await turns.claim(1, running=[turn.id]) == []
        with pytest.raises(AssertionError, match="nothing waits"):
            await turns.claim(1)  # as after a restart: the turn has no runner
    (resumed,) = await turns.claim(1)
    assert resumed.id == turn.id
