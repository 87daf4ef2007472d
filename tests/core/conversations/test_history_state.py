import time
from dataclasses import replace

import sqlalchemy as sa

from core.conversations.history_state import get_history_state
from core.conversations.service import ConversationService
from core.inbox.store import InboxStore
from core.store.database import Database
from core.store.schema import messages
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from tests.core.conftest import complete_turn
from tests.fixtures.inbox_messages import inbound


async def store_prompt(database: Database, turn: Turn) -> None:
    """Insert the user's message of a turn into the session's history, as its run does."""
    row = {"session": turn.session_id, "generation": turn.generation, "invocation_id": turn.origin, "role": "user"}
    async with database.write() as connection:
        await connection.execute(sa.insert(messages).values(**row, tool_calls=[], tokens=1, created_at=time.time()))


async def test_the_history_state_has_the_unstored_messages_before_a_turn(
    database: Database, inbox: InboxStore, turns: TurnStore
) -> None:
    first = inbound("one", author="grace", sent_at=10.0)
    await inbox.accept(first)
    (turn,) = await turns.claim(1)
    state = await get_history_state(database, turn)
    assert state is not None
    assert (state.since, state.others) == (0.0, ())
    await store_prompt(database, turn)
    assert await get_history_state(database, turn) is None  # the run's prompt is stored: the turn needs no more context
    await complete_turn(turns, turn)

    missed = inbound("lost", sent_at=20.0)
    await inbox.accept(missed)
    (turn,) = await turns.claim(1)
    await turns.end(turn, "failed")  # without stored messages
    await inbox.accept(inbound("two", sent_at=30.0))
    (turn,) = await turns.claim(1)
    state = await get_history_state(database, turn)
    assert state is not None
    assert (state.since, state.others) == (10.0, (first,))
    await store_prompt(database, turn)
    await complete_turn(turns, turn)

    await inbox.reset_session(replace(inbound("reset"), sent_at=40.0))
    await inbox.accept(inbound("three", sent_at=50.0))
    (turn,) = await turns.claim(1)
    state = await get_history_state(database, turn)
    assert state is not None
    assert (state.since, state.others) == (40.0, ())


async def test_a_conversation_is_quiet_until_people_speak_to_each_other(
    database: Database, inbox: InboxStore, turns: TurnStore
) -> None:
    conversations = ConversationService(database, turns, Worker(turns), budget=1)

    async def is_quiet() -> bool:
        await inbox.accept(inbound())
        (turn,) = await turns.claim(1)
        state = await get_history_state(database, turn)
        await complete_turn(turns, turn)
        return state is not None and state.is_quiet

    assert not await is_quiet()  # messages before the bot's first one are unknown
    assert await is_quiet()
    assert not await conversations.is_for_bot(inbound(author="grace"), follow="author")
    assert not await is_quiet()
    assert await is_quiet()
    await conversations.set_muted("place:1", True)
    assert not await is_quiet()
