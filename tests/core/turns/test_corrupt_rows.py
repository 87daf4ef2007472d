"""Damaged rows of turns and messages, which do not stop other turns."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from core.inbox.store import InboxStore
from core.store.schema import messages
from core.turns.queries import RerunKind
from core.turns.store import TurnStore
from tests.core.conftest import FailingDatabase, complete_turn
from tests.fixtures.inbox_messages import inbound

#: Complete message whose channel has a damaged name.
NOWHERE = {**inbound("left", session="p:left").to_json(), "location": {"channel": ["C1"]}}

#: Damage that both databases can store; SQLite stores values of any type in each column.
TURNS = ["chunks = '7'", "usage = '[1]'"]
TURNS_OF_SQLITE = ["attempt = 'many'", "claim_number = 'many'"]
MESSAGES = ["message = '7'", "message = '{\"text\": 3}'", f"message = '{json.dumps(NOWHERE)}'"]
MESSAGES_OF_SQLITE = ["message = '{'", "message = CAST(X'ff' AS TEXT)"]


def list_cases(both: list[str], sqlite: list[str]) -> list[tuple[str, str]]:
    return [("sqlite", what) for what in (*both, *sqlite)] + [("postgres", what) for what in both]


async def damage_row(database: FailingDatabase, table: str, what: str, session: str, *, key: str = "session") -> None:
    async with database.write() as connection:
        newest = f"SELECT max(id) FROM {table} WHERE {key} = '{session}'"
        await connection.exec_driver_sql(f"UPDATE {table} SET {what} WHERE id = ({newest})")


async def complete_all_turns(turns: TurnStore) -> list[tuple[str, str, bool]]:
    """Claim and end all turns as done; return (session, text, is_damaged) of each."""
    completed = []
    while claimed := await turns.claim(10):
        for turn in claimed:
            completed.append((turn.session_id, turn.newest_message.text, turn.is_damaged))
            await complete_turn(turns, turn)
    return completed


@pytest.mark.parametrize(("database_url", "what"), list_cases(TURNS, TURNS_OF_SQLITE), indirect=["database_url"])
async def test_an_unreadable_turn_fails_and_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, what: str
) -> None:
    await inbox.accept(inbound("left", session="p:left"))
    await turns.claim(1)
    await damage_row(database, "turns", what, "p:left")
    await inbox.accept(inbound("other", session="p:other"))
    assert await complete_all_turns(turns) == [("p:other", "other", False)]
    await inbox.accept(inbound("next", session="p:left"))
    assert await complete_all_turns(turns) == [("p:left", "next", False)]


@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "waiting"])
@pytest.mark.parametrize(("database_url", "what"), list_cases(MESSAGES, MESSAGES_OF_SQLITE), indirect=["database_url"])
async def test_an_unreadable_message_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, what: str, is_taken: bool
) -> None:
    await inbox.accept(inbound("before", session="p:left"))
    assert await complete_all_turns(turns) == [("p:left", "before", False)]
    for session in ("p:left", "p:new"):
        await inbox.accept(inbound("left", session=session))
        if is_taken:
            await turns.claim(1)
        await damage_row(database, "inbox", what, session)
    await inbox.accept(inbound("other", session="p:other"))
    assert await complete_all_turns(turns) == [("p:other", "other", False)]
    for session in ("p:left", "p:new"):
        await inbox.accept(inbound("next", session=session))
    assert await complete_all_turns(turns) == [(session, "next", False) for session in ("p:left", "p:new")]


async def test_a_retry_of_an_unreadable_turn_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("left", session="p:left"))
    (turn,) = await turns.claim(1)
    await turns.end(turn, "failed")
    await damage_row(database, "turns", "chunks = '7'", "p:left")
    await inbox.request_rerun(turn.id, author="ada", kind="retry")
    await inbox.accept(inbound("other", session="p:other"))
    assert sorted(await complete_all_turns(turns)) == [("p:left", "left", True), ("p:other", "other", False)]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "waiting"])
@pytest.mark.parametrize("kind", ["retry", "regenerate"])
async def test_an_unreadable_message_of_a_rerun_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, is_taken: bool, kind: RerunKind
) -> None:
    await inbox.accept(inbound("left", session="p:left"))
    (turn,) = await turns.claim(1)
    await turns.save_answer(turn, "the answer", {})
    await turns.end(turn, "failed" if kind == "retry" else "done")
    await inbox.request_rerun(turn.id, author="ada", kind=kind)
    if is_taken:
        await turns.claim(1)
    async with database.write() as connection:
        condition = f"turn = '{turn.id}'"
        await connection.exec_driver_sql(f"UPDATE inbox SET message = CAST(X'ff' AS TEXT) WHERE {condition}")
    await inbox.accept(inbound("other", session="p:other"))
    completed = await complete_all_turns(turns)
    assert ("p:other", "other", False) in completed
    assert [session for session, *_ in completed].count("p:left") == (0 if is_taken else 1)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_completely_unreadable_session_affects_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("before", session="p:left"))
    await complete_all_turns(turns)
    await inbox.accept(inbound("left", session="p:left"))
    async with database.write() as connection:
        await connection.exec_driver_sql("UPDATE inbox SET message = CAST(X'ff' AS TEXT)")
    await inbox.accept(inbound("other", session="p:other"))
    assert await complete_all_turns(turns) == [("p:other", "other", False)]


#: Damage of a history that prevents a resumed run: on both databases, and on SQLite only.
HISTORY = ["event = '{\"author\": '", "event = '7'", "author = 'x', event = NULL"]
HISTORY_OF_SQLITE = [
    "content = CAST(X'ff' AS TEXT)",
    "event = CAST(X'ff' AS TEXT)",
    "tool_calls = CAST(X'ff' AS TEXT)",
    "author = X'ff', event = NULL",
]


@pytest.mark.parametrize("again", [False, True], ids=["left", "tried again"])
@pytest.mark.parametrize(("database_url", "what"), list_cases(HISTORY, HISTORY_OF_SQLITE), indirect=["database_url"])
async def test_an_unreadable_history_of_a_resumed_run_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, what: str, again: bool
) -> None:
    await inbox.accept(inbound("left", session="p:left", author="ada"))
    (turn,) = await turns.claim(1)
    event = json.dumps({"author": "user", "invocationId": turn.id})
    message_row = {"session": "p:left", "generation": 1, "invocation_id": turn.id, "tokens": 1, "created_at": 1.0}
    async with database.write() as connection:
        for role in ("user", "assistant"):
            row: dict[str, Any] = {
                "role": role,
                "author": role,
                "content": "x",
                "tool_calls": [],
                "event_id": role,
                "event": event,
            }
            await connection.execute(sa.insert(messages).values(**message_row, **row))
    await damage_row(database, "messages", what, "p:left")
    if again:
        await turns.end(turn, "failed")
        await inbox.request_rerun(turn.id, author="ada", kind="retry")
    await inbox.accept(inbound("other", session="p:other"))
    completed = {(session, text) for session, text, _ in await complete_all_turns(turns)}
    assert completed == {("p:left", "left"), ("p:other", "other")}
