"""Damaged rows of turns and messages, which do not stop other turns."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from core.inbox.store import InboxStore
from core.store.schema import messages
from core.store.schema import turns as turns_table
from core.turns.store import TurnStore
from tests.core.conftest import FailingDatabase, complete_turn
from tests.core.turns.test_store import list_values
from tests.fixtures.inbox_messages import inbound

#: Complete message whose channel has a damaged name.
NOWHERE = {**inbound("left", session="p:left").to_json(), "location": {"channel": ["C1"]}}

#: Damage that both databases can store; SQLite stores values of any type in each column.
TURNS = ["chunks = '7'", "usage = '[1]'"]
TURNS_OF_SQLITE = ["attempt = 'many'"]
MESSAGES = ["message = '7'", "message = 'null'", "message = '{\"text\": 3}'", f"message = '{json.dumps(NOWHERE)}'"]
MESSAGES_OF_SQLITE = ["message = '{'", "message = CAST(X'ff' AS TEXT)"]


def list_cases(both: list[str], sqlite: list[str]) -> list[tuple[str, str]]:
    return [("sqlite", what) for what in (*both, *sqlite)] + [("postgres", what) for what in both]


async def damage_row(database: FailingDatabase, table: str, what: str, session: str, *, key: str = "session") -> None:
    async with database.write() as connection:
        newest = f"SELECT max(id) FROM {table} WHERE {key} = '{session}'"
        await connection.exec_driver_sql(f"UPDATE {table} SET {what} WHERE id = ({newest})")


async def end_all_turns(turns: TurnStore) -> list[tuple[str, str, bool]]:
    """Claim and end all turns; return (session, text, whether the turn failed) of each."""
    ended = []
    while claimed := await turns.claim(10):
        for turn in claimed:
            ended.append((turn.session_id, turn.newest_message.text, turn.fault is not None))
            await (complete_turn(turns, turn) if turn.fault is None else turns.end(turn, "failed"))
    return ended


@pytest.mark.parametrize(("database_url", "what"), list_cases(TURNS, TURNS_OF_SQLITE), indirect=["database_url"])
async def test_an_unreadable_turn_fails_once_and_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase, what: str
) -> None:
    await inbox.accept(inbound("left", session="p:left"))
    await turns.claim(1)
    await damage_row(database, "turns", what, "p:left")
    await inbox.accept(inbound("other", session="p:other"))
    assert await end_all_turns(turns) == [("p:left", "left", True), ("p:other", "other", False)]
    await inbox.accept(inbound("next", session="p:left"))
    assert await end_all_turns(turns) == [("p:left", "next", False)]


@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "waiting"])
@pytest.mark.parametrize(("database_url", "what"), list_cases(MESSAGES, MESSAGES_OF_SQLITE), indirect=["database_url"])
async def test_an_unreadable_message_fails_once_and_stops_no_other(
    inbox: InboxStore,
    turns: TurnStore,
    database: FailingDatabase,
    what: str,
    is_taken: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await inbox.accept(inbound("before", session="p:left"))
    assert await end_all_turns(turns) == [("p:left", "before", False)]
    for session in ("p:left", "p:new"):
        await inbox.accept(inbound("left", session=session))
        if is_taken:
            await turns.claim(1)
        await damage_row(database, "inbox", what, session)
    await inbox.accept(inbound("other", session="p:other"))
    # the error is shown at the message before; the new session has no readable message, and so no address
    assert sorted(await end_all_turns(turns)) == [("p:left", "before", True), ("p:other", "other", False)]
    assert "of session p:new fails without a reply: UnreadableRowError: row " in caplog.text
    assert (await list_values(database, turns_table.c.state)).count("failed") == 2
    for session in ("p:left", "p:new"):
        await inbox.accept(inbound("next", session=session))
    assert await end_all_turns(turns) == [(session, "next", False) for session in ("p:left", "p:new")]


async def test_a_retry_of_an_unreadable_turn_fails_once_and_stops_no_other(
    inbox: InboxStore, turns: TurnStore, database: FailingDatabase
) -> None:
    await inbox.accept(inbound("left", session="p:left"))
    (turn,) = await turns.claim(1)
    await turns.end(turn, "failed")
    await damage_row(database, "turns", "chunks = '7'", "p:left")
    await inbox.request_rerun(turn.id, author="ada", kind="retry")
    await inbox.accept(inbound("other", session="p:other"))
    assert sorted(await end_all_turns(turns)) == [("p:left", "left", True), ("p:other", "other", False)]


#: Damage of a history that prevents a resumed run: on both databases, and on SQLite only.
HISTORY = ["event = '{\"author\": '", "event = '7'"]
HISTORY_OF_SQLITE = [
    "event = CAST(X'ff' AS TEXT)",
    "role = 'user', tool_calls = CAST(X'ff' AS TEXT)",
    "author = X'ff', event = NULL",
]


@pytest.mark.parametrize("again", [False, True], ids=["left", "tried again"])
@pytest.mark.parametrize(("database_url", "what"), list_cases(HISTORY, HISTORY_OF_SQLITE), indirect=["database_url"])
async def test_an_unreadable_history_fails_the_resumed_run_and_stops_no_other(
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
    assert sorted(await end_all_turns(turns)) == [("p:left", "left", True), ("p:other", "other", False)]
