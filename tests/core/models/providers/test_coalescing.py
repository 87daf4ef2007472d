"""`ProviderStream`: joined deltas are complete, in time and in order."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ProviderUnavailableError
from core.models.provider import (
    NO_SUPPORTED_FILES,
    Done,
    ModelRequest,
    ProviderEvent,
    SupportedFiles,
    Text,
    Thought,
    ToolCall,
)
from core.models.providers import coalescing as merging
from core.models.providers.coalescing import DeltaSchedule, ProviderStream
from tests.fixtures.clock import FastLoop

REQUEST = ModelRequest("m", ())
Script = Sequence[ProviderEvent | asyncio.Event | Exception]


class ScriptedStream:
    """Provider that plays a script of events, errors, and asyncio events to wait for."""

    name = "scripted"

    def __init__(self, script: Script) -> None:
        self._script = script
        self.is_closed = False

    def supported_files(self, model: str) -> SupportedFiles:
        del model
        return NO_SUPPORTED_FILES

    async def stream(self, _request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        try:
            for step in self._script:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
        finally:
            self.is_closed = True

    async def aclose(self) -> None:
        return


class EndlessStream(ScriptedStream):
    """Provider that yields a word each millisecond without end."""

    async def stream(self, _request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        while True:
            yield Text("word ")
            await asyncio.sleep(0.001)


def open_stream(provider: ScriptedStream, schedule: DeltaSchedule | None = None) -> ProviderStream:
    return ProviderStream(provider, REQUEST, 30, schedule or DeltaSchedule())


async def coalesce(*script: ProviderEvent | asyncio.Event | Exception) -> list[ProviderEvent]:
    """Return the events of a script whose last event is `Done`."""
    events = list[ProviderEvent]()
    async with open_stream(ScriptedStream(script)) as stream:
        while not events or not isinstance(events[-1], Done):
            events.append(await stream.read())
    return events


async def test_the_first_delta_comes_at_once_and_the_next_ones_are_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "MIN_INTERVAL_SECONDS", 30.0)
    gate = asyncio.Event()
    script: Script = [Text("a"), gate, Text("b"), Text("c"), Done()]
    async with asyncio.timeout(20), open_stream(ScriptedStream(script)) as stream:
        assert await stream.read() == Text("a")
        gate.set()
        assert [await stream.read(), await stream.read()] == [Text("bc"), Done()], "the end waits for no window"


async def test_text_thoughts_calls_and_signed_parts_stay_separate_and_ordered() -> None:
    call = ToolCall("c", "f", {})
    script: list[ProviderEvent] = [Thought("x"), Thought("y"), Text("a"), Text("b"), call, Text("c", b"s")]
    script += [Text("d"), Text("e"), Done()]
    assert await coalesce(*script) == [
        Thought("xy"),
        Text("ab"),
        call,
        Text("c", b"s"),
        Text("de"),
        Done(),
    ]


async def test_text_before_a_failure_comes_before_it() -> None:
    script: Script = [Text("a"), Text("b"), ProviderUnavailableError("gone")]
    async with open_stream(ScriptedStream(script)) as stream:
        assert await stream.read() == Text("ab")
        with pytest.raises(ProviderUnavailableError):
            await stream.read()
    with pytest.raises(RuntimeError, match="broken"):
        await coalesce(Text("a"), RuntimeError("broken"))


async def test_without_a_schedule_each_delta_is_an_event() -> None:
    async with ProviderStream(ScriptedStream([Text("a"), Text("b"), Done()]), REQUEST, 30) as stream:
        assert [await stream.read() for _ in range(3)] == [Text("a"), Text("b"), Done()]


def test_deltas_are_rarer_with_more_streams_and_never_simultaneous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "MIN_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(merging, "DELTA_SPACING_SECONDS", 0.02)
    came = list[float]()

    async def listen(schedule: DeltaSchedule) -> None:
        async with open_stream(EndlessStream(()), schedule) as stream:
            await stream.read()  # the first delta is not delayed
            for _ in range(3):
                await stream.read()
                came.append(asyncio.get_running_loop().time())

    async def main() -> float:
        schedule, began = DeltaSchedule(), asyncio.get_running_loop().time()
        await asyncio.gather(*(listen(schedule) for _ in range(5)))
        return began

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        began = runner.run(main())
    assert came[0] - began < 0.2
    assert came[-1] - began >= 0.27, "the last of fifteen has its moment 0.29 s after the beginning"
    assert len({round(moment, 3) for moment in came}) == 15


@given(st.lists(st.sampled_from([Text("a"), Text("b"), Text("s", b"s"), Thought("t"), ToolCall("c", "f", {})])))
async def test_coalescing_keeps_all_text_in_order(script: list[ProviderEvent]) -> None:
    def split_text(events: Sequence[ProviderEvent]) -> list[tuple[object, ...]]:
        each: list[tuple[object, ...]] = []
        for event in events:
            if isinstance(event, Text | Thought):
                each += [(type(event), letter, event.signature) for letter in event.text]
            else:
                each.append((event,))
        return each

    assert split_text(await coalesce(*script, Done())) == split_text([*script, Done()])
