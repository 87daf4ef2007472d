"""A row of a turn or of a message that cannot be read stops nobody else's, and its own session is told."""

import pytest

from core.inbox import Inbox
from core.turns import Turns
from tests.core.conftest import Faulty, done
from tests.inbounds import inbound

#: What a table can hold on either database, and what else SQLite lets stand in a column, whatever its type.
TURNS = ["chunks = '7'", "chunks = '[1]'", "usage = '[1]'"]
TURNS_OF_SQLITE = [
    "attempt = 'many'",
    "claims = 'many'",
    "generation = 'none'",
    "created_at = 'soon'",
    "text = CAST(X'ff' AS TEXT)",
    "agent = CAST(X'ff' AS TEXT)",
]
MESSAGES = ["inbound = '7'", "inbound = '{\"text\": 3}'"]
MESSAGES_OF_SQLITE = ["inbound = '{'", "inbound = CAST(X'ff' AS TEXT)", "accepted_at = 'soon'"]


def on_each(both: list[str], sqlite: list[str]) -> list[tuple[str, str]]:
    return [("sqlite", what) for what in (*both, *sqlite)] + [("postgres", what) for what in both]


async def damage(database: Faulty, table: str, what: str, session: str) -> None:
    async with database.write() as connection:
        newest = f"SELECT max(id) FROM {table} WHERE session = '{session}'"
        await connection.exec_driver_sql(f"UPDATE {table} SET {what} WHERE id = ({newest})")


async def ended(turns: Turns) -> list[tuple[str, str, bool]]:
    """Each turn that can be claimed, one after the other, until none can."""
    told = []
    while claimed := await turns.claim(10):
        for turn in claimed:
            told.append((turn.session_id, turn.inbound.text, turn.is_damaged))
            await done(turns, turn)
    return told


@pytest.mark.parametrize(("database_url", "what"), on_each(TURNS, TURNS_OF_SQLITE), indirect=["database_url"])
async def test_a_turn_that_cannot_be_read_stops_no_other_and_is_told_where_it_was_asked(
    inbox: Inbox, turns: Turns, database: Faulty, what: str
) -> None:
    await inbox.accept(inbound("left", session="p:left"))
    await turns.claim(1)
    await damage(database, "turns", what, "p:left")
    await inbox.accept(inbound("other", session="p:other"))
    assert sorted(await ended(turns)) == [("p:left", "left", True), ("p:other", "other", False)]
    await inbox.accept(inbound("next", session="p:left"))
    assert await ended(turns) == [("p:left", "next", False)]


@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "waiting"])
@pytest.mark.parametrize(("database_url", "what"), on_each(MESSAGES, MESSAGES_OF_SQLITE), indirect=["database_url"])
async def test_a_message_that_cannot_be_read_stops_no_other_and_is_told_where_more_was_said(
    inbox: Inbox, turns: Turns, database: Faulty, what: str, is_taken: bool
) -> None:
    await inbox.accept(inbound("before", session="p:left"))
    assert await ended(turns) == [("p:left", "before", False)]
    for session in ("p:left", "p:new", "located:new"):
        await inbox.accept(inbound("left", session=session))
        if is_taken:
            await turns.claim(1)
        await damage(database, "inbox", what, session)
    await inbox.accept(inbound("other", session="p:other"))
    told = await ended(turns)
    assert ("p:other", "other", False) in told
    assert ("located:new", "", True) in told
    if not what.startswith("accepted_at"):
        known = [("located:new", "", True), ("p:left", "before", True), ("p:other", "other", False)]
        assert sorted(told) == known, "p:new is known nowhere"
    for session in ("p:left", "p:new", "located:new"):
        await inbox.accept(inbound("next", session=session))
    assert await ended(turns) == [(session, "next", False) for session in ("p:left", "p:new", "located:new")]
