"""What was said before what is being answered, and came after it."""

from typing import Any

import pytest
import sqlalchemy as sa

from core.inbox.store import Accepted, Inbox
from core.store.schema import messages, tool_calls
from core.store.schema import turns as turns_table
from core.turns.store import ANEW, RESET, Turns
from core.turns.turn import Turn
from tests.core.conftest import Faulty, done
from tests.core.tools.test_approvals import approvals_of
from tests.fixtures.inbox_messages import inbound


async def written(database: Faulty, *statements: sa.Executable) -> None:
    async with database.write() as connection:
        for statement in statements:
            await connection.execute(statement)


async def anew(turns: Turns, turn: Turn) -> Turn:
    """The turn, when it was handed back and is taken up again."""
    await turns.hand_back(turn)
    (again,) = await turns.claim(10)
    return again


async def test_a_turn_that_is_overtaken_by_an_older_message_begins_anew_with_both_in_order(
    inbox: Inbox, turns: Turns, database: Faulty
) -> None:
    first, second, third = inbound("first"), inbound("second"), inbound("third")
    await inbox.accept(second)
    (turn,) = await turns.claim(10)
    row = {"session": turn.session_id, "generation": 1, "role": "user", "tool_calls": [], "tokens": 1, "created_at": 1}
    await written(
        database,
        sa.insert(messages).values(**row, invocation_id="an older turn"),
        sa.insert(messages).values(**row, invocation_id=turn.origin),
    )
    await inbox.accept(third)
    assert await turns.running() == {turn.id: None}
    assert await inbox.accept(first) is Accepted.WAITS
    assert await turns.running() == {turn.id: ANEW}
    again = await anew(turns, turn)
    assert (again.id, again.attempt, again.messages) == (turn.id, 1, (first, second))
    assert await turns.running() == {turn.id: None}
    async with database.read() as connection:
        kept = (await connection.execute(sa.select(messages.c.invocation_id))).scalars().all()
    assert kept == ["an older turn"]
    await done(turns, again)
    (last,) = await turns.claim(10)
    assert last.messages == (third,)


def _tool(turn: Turn) -> sa.Executable:
    call: dict[str, Any] = {"session": turn.session_id, "run": turn.origin, "id": "call", "tool": "send"}
    return sa.insert(tool_calls).values(**call, arguments={}, hash="", state="begun", begun_at=1.0)


def _state(**values: Any) -> Any:
    return lambda turn: sa.update(turns_table).where(turns_table.c.id == turn.id).values(**values)


@pytest.mark.parametrize(
    "done_by_now",
    [_tool, _state(state="answered", text="it"), _state(cancel=RESET)],
    ids=["a tool was called", "the answer is kept", "it is to be ended"],
)
async def test_a_turn_that_has_done_something_goes_on_and_the_older_message_is_answered_behind_it(
    inbox: Inbox, turns: Turns, database: Faulty, done_by_now: Any
) -> None:
    first, second = inbound("first"), inbound("second")
    await inbox.accept(second)
    (turn,) = await turns.claim(10)
    await written(database, done_by_now(turn))
    await inbox.accept(first)
    assert ANEW not in (await turns.running()).values()
    again = await anew(turns, turn)
    assert again.messages == (second,)


async def test_what_is_to_be_answered_once_more_joins_no_turn(inbox: Inbox, turns: Turns, database: Faulty) -> None:
    await inbox.accept(inbound("tried"))
    (failed,) = await turns.claim(10)
    await turns.end(failed, "failed")
    await inbox.again(failed.id, author="ada", kind="retry")
    await inbox.accept(later := inbound("later", sent_at=9e9))
    (turn,) = await turns.claim(10)
    assert turn.kind == "retry"
    assert await turns.running() == {turn.id: None}
    await done(turns, turn)
    (last,) = await turns.claim(10)
    assert last.messages == (later,)


async def test_what_was_kept_before_the_answer_is_comes_first_though_nobody_has_told(
    inbox: Inbox, turns: Turns, database: Faulty
) -> None:
    first, second, third = inbound("first"), inbound("second"), inbound("third")
    await inbox.accept(third)
    (turn,) = await turns.claim(10)
    await inbox.accept(second)
    assert not await turns.answered(turn, "only the third", {})
    turn = await anew(turns, turn)
    await inbox.accept(first)
    assert await approvals_of(database, turns).answered(turn, "may I?", {}, []) is None
    turn = await anew(turns, turn)
    assert turn.messages == (first, second, third)
    assert await turns.answered(turn, "all of it", {})
    await inbox.accept(inbound("later", sent_at=9e9))
    assert await turns.answered(turn, "all of it", {}), "what is written twice is no fault"
    await turns.end(turn, "done")


async def test_a_turn_of_a_worker_that_is_gone_is_overtaken_like_any_other(
    inbox: Inbox, turns: Turns, database: Faulty
) -> None:
    first, second = inbound("first"), inbound("second")
    await inbox.accept(second)
    (turn,) = await turns.claim(10)
    await written(database, _state(owner="a worker that is gone")(turn))
    (taken,) = await turns.claim(10)
    assert (taken.attempt, taken.messages) == (2, (second,))
    await inbox.accept(first)
    assert await turns.running() == {turn.id: ANEW}
    assert not await turns.answered(taken, "only the second", {})
    again = await anew(turns, taken)
    assert (again.attempt, again.messages) == (2, (first, second))
