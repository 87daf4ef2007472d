"""What waits is taken by two statements, and as it is by the second of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from benchmarks.turns.statements import counted
from core.inbox.store import Inbox
from core.sessions.routing import Agent, Agents
from core.store.fast_path import Statement
from core.store.schema import inbox as inbox_table
from core.store.schema import sessions
from core.store.schema import turns as turns_table
from core.turns import claims as claiming
from core.turns.store import Turns
from tests.core.conftest import MODELS, Faulty, worker_on
from tests.fixtures.inbox_messages import inbound

Meanwhile = Callable[[], Awaitable[object]]


def between(database: Faulty, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile) -> None:
    """Have something happen behind the look for what waits, and before that is taken."""
    plain = database.run

    async def run(statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        if statement is claiming._TAKE:
            monkeypatch.undo()
            await meanwhile()
        return await plain(statement, **values)

    monkeypatch.setattr(database, "run", run)


async def test_a_look_for_nothing_is_one_statement_and_a_turn_that_begins_one_more(
    inbox: Inbox, turns: Turns, database: Faulty
) -> None:
    with counted(database) as asked:
        assert await turns.claim(10) == []
    assert asked == {"read": 1}
    for number in range(3):
        await inbox.accept(inbound(session=f"place:{number}"))
    async with database.write() as connection:
        chosen = sa.update(sessions).where(sessions.c.id == "place:1").values(model="m", agent="bot")
        await connection.execute(chosen)
    turns.agents = Agents("app", {"bot": Agent("bot", MODELS, chosen_at=None)})
    with counted(database) as asked:
        claimed = await turns.claim(10)
    async with database.read() as connection:
        names = ("id", "session", "generation", "kind", "origin", "model", "agent", "attempt", "state")
        rows = await connection.execute(sa.select(*(turns_table.c[name] for name in names)).order_by("created_at"))
        assert [tuple(row) for row in rows] == [
            (turn.id, turn.session_id, 1, "message", turn.id, turn.model, turn.agent, 1, "running") for turn in claimed
        ]
    assert [(turn.model, turn.agent) for turn in claimed] == [(None, "app"), ("m", "bot"), (None, "app")]
    assert [turn.session_id for turn in claimed] == [f"place:{number}" for number in range(3)]
    several = {"begin": 1, "update inbox": 1, "insert turns": 1, "commit": 1}
    assert asked == {"read": 1, **(several if database.is_sqlite else {"update inbox + insert turns": 1})}


async def test_what_changes_behind_the_look_is_taken_as_it_is_then(
    inbox: Inbox, turns: Turns, database: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited, deleted, alone, forgotten = inbound(), inbound(), inbound(session="p:2"), inbound(session="p:3")
    for message in (edited, deleted, alone, forgotten):
        await inbox.accept(message)

    async def change() -> None:
        await inbox.revise(edited.event_key, "what was meant")
        await inbox.withdraw(deleted.event_key)
        await inbox.withdraw(alone.event_key)
        await inbox.reset(inbound(session="p:3"))

    between(database, monkeypatch, change)
    (turn,) = await turns.claim(10)
    assert [message.text for message in turn.messages] == ["what was meant"]
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(turns_table.c.id, turns_table.c.chunks))).all()
        taken = await connection.execute(sa.select(inbox_table.c.event_key).where(inbox_table.c.turn.is_not(None)))
        assert rows == [(turn.id, [])]
        assert taken.scalars().all() == [edited.event_key]


async def test_a_session_that_another_worker_has_taken_behind_the_look_is_left_to_it(
    inbox: Inbox, turns: Turns, database: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inbox.accept(inbound(session="p:1"))
    await inbox.accept(inbound(session="p:2"))
    other = turns if database.is_sqlite else await worker_on(database)
    theirs = []

    async def claim() -> None:
        theirs.extend(await other.claim(1))
        await inbox.accept(inbound(session="p:1"))

    between(database, monkeypatch, claim)
    mine = await turns.claim(10, running=[])
    assert [turn.session_id for turn in theirs] == ["p:1"]
    assert [turn.session_id for turn in mine] == ["p:2"]


async def test_of_a_turn_that_cannot_begin_no_message_is_taken(
    inbox: Inbox, turns: Turns, database: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inbox.accept(inbound())
    (turn,) = await turns.claim(1)
    monkeypatch.setattr(claiming, "new_id", lambda: turn.id)
    await inbox.accept(inbound(session="p:2"))
    with pytest.raises(IntegrityError):
        await claiming.take(database, turns._lease, turns.agents, 1, [turn.id], served={})
    monkeypatch.undo()
    (other,) = await turns.claim(1, running=[turn.id])
    assert other.session_id == "p:2"


async def test_a_claim_that_is_broken_off_takes_nothing_or_all(inbox: Inbox, turns: Turns, database: Faulty) -> None:
    """Wherever it is cancelled, a turn and its messages go together, and who claims behind it has them."""
    for number in range(12):
        session = f"place:{number}"
        await inbox.accept(inbound(session=session))
        claiming_it = asyncio.create_task(turns.claim(1))
        for _ in range(number):
            await asyncio.sleep(0.001 * number)
        claiming_it.cancel()
        await asyncio.wait([claiming_it])
        claimed = [] if claiming_it.cancelled() else claiming_it.result()
        async with asyncio.timeout(30):
            while not claimed:  # what the database has not quite come to the end of is passed over
                claimed = await turns.claim(1)
        (turn,) = claimed
        assert turn.session_id == session
        await turns.end(turn, "failed")


@pytest.mark.parametrize("is_fast", [True, False], ids=["in two statements", "in a transaction"])
async def test_turns_are_claimed_round_robin_over_people(
    inbox: Inbox, turns: Turns, monkeypatch: pytest.MonkeyPatch, *, is_fast: bool
) -> None:
    if not is_fast:
        monkeypatch.setattr("core.turns.store.take", nothing)
    people = ["ada"] * 6 + ["grace"] * 2 + ["linus"]
    for number, author in enumerate(people):
        await inbox.accept(inbound(session=f"place:{number}", author=author))
    claimed = await turns.claim(4)
    for number in range(4):
        claimed += await turns.claim(1, running=[turn.id for turn in claimed])
        await inbox.accept(inbound(session=f"late:{number}", author="ada"))
    served = [turn.inbound.author for turn in claimed]
    assert served == ["ada", "grace", "linus", "ada", "grace", "ada", "ada", "ada"]


async def nothing(*_: Any, **__: Any) -> None:
    """Claim nothing in two statements."""


async def test_what_is_noted_and_never_answered_makes_no_claim_slower(inbox: Inbox, database: Faulty) -> None:
    if not database.is_sqlite:
        return  # which knows how many rows it is that no turn has taken
    values = {"the_worker": "w", "the_now": 1.0, "none": []}
    look = {"the_running": [], "is_sure": True, "the_limit": 9, "the_served": {}}
    take = {"the_claims": {"1": "t"}, "the_models": {}, "the_agents": {"t": "a"}}
    for statement, more in ((claiming._LOOK, look), (claiming._TAKE, take)):
        for step in statement.prepared(database.engine.dialect).steps:
            asked = f"EXPLAIN QUERY PLAN {step.sql}", tuple(step.arguments({**values, **more}))
            async with database.read() as connection:
                found = [row.detail for row in await connection.exec_driver_sql(*asked)]
            known = ("ix_inbox_waiting", "INTEGER PRIMARY KEY", "the_agents VIRTUAL TABLE")
            assert any(way in one for one in found for way in known), found
            assert not [one for one in found if "waiting USING INDEX ix_inbox_turn" in one], found
