"""Messages that arrive after the turn of a newer message has begun."""

from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult
from core.turns.store import TurnStore
from tests.core.conftest import complete_turn
from tests.fixtures.inbox_messages import inbound


async def test_the_next_turn_answers_a_late_message_before_newer_ones(inbox: InboxStore, turns: TurnStore) -> None:
    first, second, third = inbound("first"), inbound("second"), inbound("third")
    await inbox.accept(second)
    (turn,) = await turns.claim(10)
    await inbox.accept(third)
    assert await inbox.accept(first) is AcceptResult.WAITING
    assert await inbox.accept(first) is AcceptResult.DUPLICATE
    assert await turns.list_owned() == {turn.id: None}
    await complete_turn(turns, turn)
    (following,) = await turns.claim(10)
    assert following.messages == (first, third)
    await complete_turn(turns, following)
    assert await turns.claim(10) == []


async def test_a_resumed_turn_leaves_a_late_message_to_the_next_turn(inbox: InboxStore, turns: TurnStore) -> None:
    first, second = inbound("first"), inbound("second")
    await inbox.accept(second)
    (turn,) = await turns.claim(10)
    await inbox.accept(first)
    await turns.hand_back(turn)
    (resumed,) = await turns.claim(10)
    assert (resumed.id, resumed.messages) == (turn.id, (second,))
    await complete_turn(turns, resumed)
    (following,) = await turns.claim(10)
    assert following.messages == (first,)
