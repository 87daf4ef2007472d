"""Messages that a running turn claims."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types

from core.inbox.store import InboxStore
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.schema import human_requests
from core.store.schema import inbox as inbox_table
from core.turns.cancel import stop_session
from core.turns.steering import MAX_MESSAGES, MayRead, SteeringQueue
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from tests.core.conftest import FailingDatabase, complete_turn, create_turn_store
from tests.fixtures.inbox_messages import inbound


class Bench:
    """A worker with one running turn of Ada, which answers "look"."""

    def __init__(self, database: FailingDatabase, turns: TurnStore) -> None:
        self.database = database
        self.turns = turns
        self.worker = Worker(turns)
        self.inbox = InboxStore(database, turns, self.worker)
        self.turn: Turn

    async def start(self) -> None:
        await self.inbox.accept(inbound("look"))
        (self.turn,) = await self.turns.claim(10)
        self.worker.take_wake(self.turn.session_id)

    def open_queue(self, may_read: MayRead = lambda _: True, turn: Turn | None = None) -> SteeringQueue:
        return SteeringQueue(self.database, self.turns, self.worker, turn or self.turn, may_read)

    async def list_kinds(self) -> list[tuple[str, str | None]]:
        query = sa.select(inbox_table.c.kind, inbox_table.c.turn).order_by(inbox_table.c.id)
        async with self.database.read() as connection:
            return [(row.kind, row.turn) for row in await connection.execute(query)]


@pytest.fixture
async def bench(database: FailingDatabase, turns: TurnStore) -> Bench:
    bench = Bench(database, turns)
    await bench.start()
    return bench


async def take(queue: SteeringQueue) -> list[str]:
    return [found.message.text for found in await queue.take()]


async def test_the_waiting_messages_of_the_author_are_taken_once_in_order(bench: Bench) -> None:
    queue = bench.open_queue()
    for text in ("one", "two"):
        await bench.inbox.accept(inbound(text))
    assert await take(queue) == ["one", "two"]
    assert await take(queue) == []
    assert await bench.list_kinds() == [("message", bench.turn.id), *[("steering", bench.turn.id)] * 2]
    await complete_turn(bench.turns, bench.turn)
    assert await bench.turns.claim(10) == []


async def test_messages_of_others_and_reruns_wait(bench: Bench) -> None:
    queue = bench.open_queue()
    await bench.inbox.accept(inbound("one", author="grace"))
    await bench.inbox.accept(inbound("two", session="place:2"))
    await bench.inbox.request_rerun(bench.turn.id, author="ada", kind="retry")
    assert await take(queue) == []


async def test_messages_wait_behind_one_that_may_not_be_read(bench: Bench) -> None:
    queue = bench.open_queue(lambda message: message.text != "two")
    for text in ("one", "two", "three"):
        await bench.inbox.accept(inbound(text))
    assert await take(queue) == ["one"]
    await complete_turn(bench.turns, bench.turn)
    (following,) = await bench.turns.claim(10)
    assert [message.text for message in following.messages] == ["two", "three"]


async def test_a_message_that_may_answer_a_question_waits(bench: Bench) -> None:
    request: dict[str, Any] = {
        column.name: "" if isinstance(column.type, sa.Text) else 1
        for column in human_requests.c
        if not (column.nullable or isinstance(column.type, sa.JSON))
    }
    lists = ("arguments", "authors", "speakers", "deciders", "secret_paths", "chunks", "answer_authors", "drafts")
    request |= {name: [] for name in lists} | {"may_allow_always": False, "kind": "question"}
    request |= {"id": "q1", "turn": bench.turn.id, "session": bench.turn.session_id}
    async with bench.database.write() as connection:
        await connection.execute(sa.insert(human_requests).values(request))
    queue = bench.open_queue()
    await bench.inbox.accept(inbound("one"))
    assert await take(queue) == []


async def test_the_database_is_read_only_after_a_message_of_the_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bench.open_queue()
    await bench.inbox.accept(inbound("elsewhere", session="place:2"))
    with monkeypatch.context() as patch:
        patch.setattr(bench.database, "run", None)
        assert await take(queue) == []
    bench.worker.wake()  # another worker may have accepted a message: it says not for which session
    await bench.inbox.accept(inbound("here"))
    assert await take(queue) == ["here"]


async def test_a_turn_reads_all_of_many_messages(bench: Bench) -> None:
    queue = bench.open_queue()
    texts = [str(number) for number in range(MAX_MESSAGES + 1)]
    for text in texts:
        await bench.inbox.accept(inbound(text))
    assert await take(queue) == texts[:-1]
    assert await take(queue) == texts[-1:]


async def test_a_stopped_turn_takes_nothing(bench: Bench) -> None:
    queue = bench.open_queue()
    async with bench.database.write() as connection:
        await stop_session(connection, bench.turns, bench.turn.session_id, author="ada")
    await bench.inbox.accept(inbound("one"))
    assert await take(queue) == []
    assert (await bench.list_kinds())[-1] == ("message", None)


async def test_a_former_owner_takes_nothing(bench: Bench) -> None:
    queue = bench.open_queue()
    await bench.turns.hand_back(bench.turn)
    other = await create_turn_store(bench.database)
    (resumed,) = await other.claim(10)
    await bench.inbox.accept(inbound("one"))
    assert await take(queue) == []
    assert await take(SteeringQueue(bench.database, other, bench.worker, resumed, lambda _: True)) == ["one"]


async def test_the_next_attempt_reads_what_the_last_one_took_and_did_not_store(
    bench: Bench, service: SessionService
) -> None:
    queue = bench.open_queue()
    for text in ("stored", "taken", "deleted"):
        await bench.inbox.accept(message := inbound(text))
    stored, *_ = await queue.take()
    await bench.inbox.delete_message(message.event_key)
    await store_event(service, bench.turn, stored.event_id)
    await bench.turns.hand_back(bench.turn)
    await bench.inbox.accept(inbound("waits"))
    (resumed,) = await bench.turns.claim(10)
    assert [message.text for message in resumed.messages] == ["look"]
    queue = bench.open_queue(turn=resumed)
    assert await take(queue) == ["taken", "waits"]
    assert await take(queue) == []


async def store_event(service: SessionService, turn: Turn, event_id: str) -> None:
    session = await service.get_session(app_name="app", user_id="place", session_id=turn.session_id)
    assert isinstance(session, StoredSession)
    event = Event(id=event_id, author="user", invocation_id=turn.run_id, content=types.UserContent("stored"))
    await service.append_event(session, event)


async def test_the_kinds_of_reruns_after_a_message_was_read(bench: Bench) -> None:
    await bench.inbox.accept(inbound("one"))
    await take(bench.open_queue())
    await bench.turns.end(bench.turn, "failed")
    await bench.inbox.request_rerun(bench.turn.id, author="ada", kind="retry")
    (retry,) = await bench.turns.claim(10)
    assert (retry.kind, [message.text for message in retry.messages]) == ("retry", ["look"])
    await complete_turn(bench.turns, retry)
    await bench.inbox.request_rerun(retry.id, author="ada", kind="regenerate")
    (again,) = await bench.turns.claim(10)
    assert (again.kind, [message.text for message in again.messages]) == ("revise", ["look", "one"])
    assert await take(bench.open_queue(turn=replace(again, is_resumed=True))) == []


async def test_the_deletion_of_a_read_message_cancels_no_turn(bench: Bench) -> None:
    await bench.inbox.accept(message := inbound("one"))
    await take(bench.open_queue())
    await bench.inbox.delete_message(message.event_key)
    assert await bench.turns.list_owned() == {bench.turn.id: None}
