"""The executor of a reply's operations, on a surface in memory."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import FIRST_TEXT, Button, Chunk, File, FileRefusedError, Plan, Priority
from channels.rate_limits.limiter import RateLimiter, Window
from channels.replies import executor as executor_module
from channels.replies.diff import Content, Edit, Post, StreamRules
from channels.replies.executor import Executor
from channels.replies.stream import StreamPart
from channels.replies.surface import EditOutcome, PostOutcome, StartOutcome, StreamEndedError
from core.concurrency import event_loop
from tests.fixtures.executed_reply import ExecutedReply
from tests.fixtures.memory_surface import MemorySurface

#: What happens to a call: it has an effect and no response, the effect comes later or never, or it is dropped.
FAULTS = st.lists(st.sampled_from(["ok", "lost", "late", "failed", "dropped"]), max_size=12)

TEXTS = st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=4)


class FaultySurface(MemorySurface):
    """Surface in memory with streams, whose calls fail in a given order.

    Attributes:
        open_streams: the ids of the messages whose streams are open.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__()
        self.streams = FaultyStreams(self)
        self.open_streams = set[str]()
        self._faults = list(faults)
        self._late_writes: list[tuple[float, Callable[[], None]]] = []

    def take_fault(self) -> str:
        self.apply_late_writes()
        return self._faults.pop(0) if self._faults else "ok"

    def write_late(self, fault: str, id_: str, content: Content) -> None:
        """Write a message whose call gets no response, now or later, unless the call fails."""

        def write() -> None:
            self.messages[id_], self.buttons[id_] = content

        if fault == "late":
            self._late_writes.append((event_loop.now() + executor_module.LATE_CALL_SECONDS / 3, write))
        elif fault == "lost":
            write()

    def apply_late_writes(self) -> None:
        """Make the calls take effect whose time has come, before the next call: a timer may run too late for it."""
        due = [write for at, write in self._late_writes if at <= event_loop.now()]
        self._late_writes = [(at, write) for at, write in self._late_writes if write not in due]
        for write in due:
            write()

    async def post(self, operation: Post, *, previous_id: str | None = None, has_slot: bool = False) -> PostOutcome:
        fault = self.take_fault()
        is_tick = operation.priority is Priority.STREAM_UPDATE
        if fault == "ok" or (fault == "dropped" and not is_tick):
            return await super().post(operation, previous_id=previous_id, has_slot=has_slot)
        lost_id = f"lost{len(self._faults)}"
        self.write_late(fault, lost_id, operation.content)
        if fault == "lost":
            return PostOutcome(lost_id, is_new=False, was_lost=True)
        if is_tick:
            return PostOutcome("", was_lost=fault != "dropped")
        outcome = await super().post(operation, previous_id=previous_id, has_slot=has_slot)
        return PostOutcome(outcome.id, was_lost=True)

    async def edit(self, message_id: str, operation: Edit, *, has_slot: bool = False) -> EditOutcome:
        fault = self.take_fault()
        assert message_id not in self.open_streams, "a message that is streamed cannot be edited"
        if fault == "ok" or operation.priority is not Priority.STREAM_UPDATE:
            return await super().edit(message_id, operation, has_slot=has_slot)
        if fault == "dropped":
            return EditOutcome.DROPPED
        self.write_late(fault, message_id, operation.content)
        return EditOutcome.NO_RESPONSE

    async def delete(self, message_id: str) -> None:
        self.open_streams.discard(message_id)
        await super().delete(message_id)

    async def delete_strays(self, known_ids: Sequence[str]) -> None:
        self.apply_late_writes()
        for id_ in set(self.messages) - set(known_ids):
            await self.delete(id_)


class FaultyStreams:
    """Streams of a `FaultySurface`."""

    rules = StreamRules(60.0, 1_000, lambda part: len(part.text))

    def __init__(self, surface: FaultySurface) -> None:
        self._surface = surface
        self.start_limiter = RateLimiter(Window(1_000, 1.0))
        self.append_limiter = RateLimiter(Window(1_000, 1.0))
        self.stop_limiter = RateLimiter(Window(1_000, 1.0))

    def may_start(self) -> bool:
        return True

    async def start(self, position: int, part: StreamPart) -> StartOutcome:
        fault, id_ = self._surface.take_fault(), f"s{len(self._surface.messages)}{position}"
        if fault == "dropped":
            return StartOutcome()
        if fault != "ok":
            self._surface.write_late(fault, id_, (part.text, ()))
            return StartOutcome(id_ if fault == "lost" else "", was_lost=True)
        self._surface.messages[id_] = part.text
        self._surface.open_streams.add(id_)
        return StartOutcome(id_, is_open=True)

    async def append(self, message_id: str, part: StreamPart) -> bool:
        fault = self._surface.take_fault()
        if fault == "dropped":
            return False
        if fault != "failed":
            self._surface.messages[message_id] += part.text
        if fault != "ok":
            raise StreamEndedError
        return True

    async def finish(self, position: int, message_id: str, part: StreamPart, buttons: Sequence[Button]) -> None:
        await self.append(message_id, part)
        await self.stop(message_id)

    async def stop(self, message_id: str) -> None:
        self._surface.open_streams.discard(message_id)


def plan_texts(texts: Sequence[str], *, is_growing: bool) -> Plan:
    priority = Priority.STREAM_UPDATE if is_growing else Priority.FINAL
    return Plan([Chunk(0, 0, text, len(text)) for text in texts], priority, is_growing=is_growing)


@given(st.lists(st.tuples(TEXTS, st.booleans(), st.booleans()), max_size=5), TEXTS, FAULTS, st.booleans())
async def test_exactly_the_final_plan_is_shown_whatever_call_fails(
    steps: list[tuple[list[str], bool, bool]], final: list[str], faults: list[str], may_stream: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor_module, "LATE_CALL_SECONDS", 0.006)
        surface = FaultySurface(faults)
        if not may_stream:
            surface.streams = None
        reply = ExecutedReply(surface)
        for texts, is_deleted, is_restarted in steps:
            await reply.show_plan(plan_texts(texts, is_growing=True))
            if is_restarted:
                await asyncio.sleep(0.006)
                surface.apply_late_writes()  # of the former process
                surface.open_streams.clear()  # an edit of the next process stops a stream
                reply.restart(surface, list(surface.messages))
            if is_deleted and reply.known and reply.known[-1] not in surface.open_streams:
                surface.messages.pop(reply.known[-1], None)
                reply.restart(surface)  # else the next text would reveal the deletion
        while not await reply.show_plan(plan_texts(final, is_growing=False)):
            pass
    assert [surface.messages[id_] for id_ in reply.known] == final
    assert len(surface.messages) == len(final)
    assert not surface.open_streams


async def test_each_post_gets_the_previous_message_id() -> None:
    surface = MemorySurface()
    reply = ExecutedReply(surface)
    await reply.show("one")
    await reply.show("one", "two", "three")
    assert [surface.previous_ids[id_] for id_ in reply.known] == [None, *reply.known[:2]]


async def test_an_edit_that_lands_late_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "LATE_CALL_SECONDS", 0.3)
    surface = MemorySurface()
    reply = ExecutedReply(surface)
    await reply.show("...", priority=Priority.STREAM_UPDATE)
    surface.lost_text = "half"
    assert not await reply.show("half", priority=Priority.STREAM_UPDATE)
    asyncio.get_running_loop().call_later(0.2, surface.messages.update, {reply.known[0]: "half"})
    assert await reply.show("all of it")
    assert surface.texts == ["all of it"]


async def test_a_message_grows_only_while_its_last_edit_is_reserved() -> None:
    edits = RateLimiter(Window(calls=5, seconds=60.0))
    growing = plan_texts(["It"], is_growing=True)
    with ExitStack() as replies:
        executors = []
        for _ in range(6):
            surface = MemorySurface()
            surface.limiter = edits  # type: ignore[assignment]  # a real one
            executors.append(Executor(surface, (), surface.save_ids))
            replies.enter_context(executors[-1].track())
        assert [executor.choose(growing) is not None for executor in executors] == [True] * 4 + [False] * 2
        assert executors[0].choose(growing) is not None
        assert not executors[5].is_shown(growing)
    assert executors[5].choose(growing) is not None


async def test_a_slot_is_used_once_or_released() -> None:
    surface = MemorySurface()
    limiter = RateLimiter(Window(calls=2, seconds=60.0))
    surface.limiter = limiter  # type: ignore[assignment]  # a real one
    executor = Executor(surface, (), surface.save_ids)
    plan = plan_texts(["one"], is_growing=False)
    with executor.track():
        operation = executor.choose(plan)
        assert operation is not None
        assert not executor.has_slot(operation)
        await executor.acquire_slot(operation, FIRST_TEXT)
        assert executor.has_slot(operation)
        await executor.acquire_slot(operation, FIRST_TEXT)  # releases the former slot
    assert limiter.try_acquire(Priority.FINAL)
    assert limiter.try_acquire(Priority.FINAL)


async def test_a_slot_that_the_newest_plan_does_not_need_is_released() -> None:
    surface = MemorySurface()
    limiter = RateLimiter(Window(calls=1, seconds=60.0))
    surface.limiter = limiter  # type: ignore[assignment]  # a real one
    executor = Executor(surface, (), surface.save_ids)
    operation = executor.choose(plan_texts(["one"], is_growing=False))
    assert operation is not None
    await executor.acquire_slot(operation, FIRST_TEXT)
    assert executor.choose(plan_texts(["o"], is_growing=True)) is None  # no call is left for its end
    assert limiter.try_acquire(Priority.FINAL)


async def test_an_interrupted_wait_acquires_no_slot() -> None:
    surface = MemorySurface()
    surface.limiter.blocked_priorities = {Priority.FINAL}
    executor = Executor(surface, (), surface.save_ids)
    operation = executor.choose(plan_texts(["one"], is_growing=False))
    assert operation is not None
    waiting = asyncio.create_task(executor.acquire_slot(operation, event_loop.now()))
    await surface.wait_for_condition(lambda: surface.limiter.waits)
    executor.interrupt()
    await waiting
    assert not executor.has_slot(operation)


RETRY, STOP = Button("retry:1", "Retry"), Button("stop:1", "Stop")
FILE = File("answer.md", b"all of it")


async def test_the_buttons_are_under_the_last_message_only() -> None:
    surface = MemorySurface()
    reply = ExecutedReply(surface)
    await reply.show("one", "two", buttons=[RETRY])
    assert [surface.buttons[id_] for id_ in reply.known] == [(), (RETRY,)]
    await reply.show("one", "two", "three", buttons=[STOP])
    assert [surface.buttons[id_] for id_ in reply.known] == [(), (), (STOP,)]
    await reply.show("one", "two", "three")
    assert [surface.buttons[id_] for id_ in reply.known] == [(), (), ()]


async def test_a_file_is_posted_once_and_deleted_with_its_plan() -> None:
    surface = MemorySurface()
    reply = ExecutedReply(surface)
    await reply.show("one", "two", files=[FILE])
    assert list(surface.files.values()) == [FILE]
    reply.restart(surface)
    await reply.show("one", "two", files=[FILE])
    assert list(surface.files.values()) == [FILE]
    plot = File("plot.png", b"a curve")
    await reply.show("one", files=[FILE, plot])  # the file now follows the first message
    assert (list(surface.files.values()), len(reply.known)) == ([FILE, plot], 3)
    assert reply.known[1:] == [f"file:{id_}:{file.name}" for id_, file in surface.files.items()]
    await reply.show("one", "two", files=[plot])
    assert (list(surface.files.values()), len(reply.known)) == ([plot], 3)
    await reply.show("one")
    assert (surface.files, len(reply.known)) == ({}, 1)


async def test_a_refused_file_is_reported_after_the_rest_is_shown() -> None:
    surface = MemorySurface()
    surface.refused_files = {FILE.name}
    with pytest.raises(FileRefusedError):
        await ExecutedReply(surface).show("one", "two", files=[FILE])
    assert surface.texts == ["one", "two"]
