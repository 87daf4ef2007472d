"""Run records made from the events of a run: tool calls, history and timings."""

import asyncio
from typing import Any

import pytest

from core.agents.events import StreamEvent
from core.agents.run_record import MAX_TOOLS, FileRecord, RunRecord, RunRecorder
from core.errors import ProviderRequestError
from core.models.provider import Done, ToolCall
from core.sessions.history import DEFAULT_MAX_TURNS
from core.tools.tool import Tool
from tests.fixtures.conversation import Converse, ScriptedProvider

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
RUN = "t1"


async def wait(arguments: dict[str, Any]) -> str:
    await asyncio.sleep(arguments["n"] / 100)
    if arguments["n"] == 3:
        raise ValueError("three is too many")
    return "slept"


def calls(*numbers: int) -> list[Any]:
    return [*(ToolCall(f"c{n}", "wait", {"n": n}) for n in numbers), Done()]


def get_run_record(recorder: RunRecorder) -> RunRecord:
    record = RunRecord.from_json(recorder.run_record)
    assert record is not None
    return record


async def test_concurrent_calls_have_their_own_times_and_outcomes(converse: Converse) -> None:
    provider = ScriptedProvider(calls(1, 3, 200), "Done.")
    conversation = await converse(provider, tools=[Tool("wait", "Waits.", wait, SCHEMA)])
    recorder = RunRecorder()
    for event in await conversation.events("go", run_id=RUN):
        recorder.record_event(event)
    record = get_run_record(recorder)
    assert [(use.arguments, use.outcome) for use in record.tool_calls] == [
        ('{"n": 1}', "done"),
        ('{"n": 3}', "failed"),
        ('{"n": 200}', "done"),
    ]
    short, _, long = (use.seconds for use in record.tool_calls)
    assert short is not None
    assert long is not None
    assert short < 1.9 < long
    assert "three is too many" in record.tool_calls[1].error
    assert record.first_text_seconds is not None
    assert 2.0 <= record.first_text_seconds <= record.seconds


async def test_calls_of_an_earlier_attempt_are_marked(converse: Converse) -> None:
    refused = [ProviderRequestError("no")]
    provider = ScriptedProvider(calls(1, 3), refused, calls(2), "Done.")
    conversation = await converse(provider, tools=[Tool("wait", "Waits.", wait, SCHEMA)])
    first, second = RunRecorder(), RunRecorder()
    for event in await conversation.events("go", run_id=RUN):
        first.record_event(event)
    assert [(use.id, use.outcome) for use in get_run_record(first).tool_calls] == [("c1", "done"), ("c3", "failed")]
    for event in await conversation.events("go", run_id=RUN):
        second.record_event(event)
    uses = get_run_record(second).tool_calls
    assert [(use.id, use.outcome, use.is_from_earlier_attempt) for use in uses] == [
        ("c1", "done", True),
        ("c3", "failed", True),
        ("c2", "done", False),
    ]
    assert "three is too many" in uses[1].error


async def test_the_record_has_the_size_of_the_history_and_its_limit(converse: Converse) -> None:
    conversation = await converse(ScriptedProvider(*["Yes."] * 4), budget=100)
    await conversation.reply("first")
    recorder = RunRecorder()
    for event in await conversation.events("second", run_id=RUN):
        recorder.record_event(event)
    history = get_run_record(recorder).history
    assert history is not None
    assert (history.messages, history.limit, history.budget) == (2, "", 100)
    await conversation.insert_message("user", "long", tokens=90)
    await conversation.insert_message("assistant", "answer", tokens=9)
    cut = RunRecorder()
    for event in await conversation.events("third", run_id="t3"):
        cut.record_event(event)
    history = get_run_record(cut).history
    assert history is not None
    assert (history.messages, history.tokens, history.limit) == (2, 99, "tokens")


async def test_the_record_names_the_turn_limit_as_the_limit_of_the_history(converse: Converse) -> None:
    conversation = await converse(ScriptedProvider("Yes."))
    for _ in range(DEFAULT_MAX_TURNS + 2):
        await conversation.insert_message("user", "question")
        await conversation.insert_message("assistant", "answer")
    recorder = RunRecorder()
    for event in await conversation.events("go", run_id=RUN):
        recorder.record_event(event)
    history = get_run_record(recorder).history
    assert history is not None
    assert history.limit == "turns"
    assert (history.turns, history.messages) == (21, 42)


def test_unfinished_calls_are_open_and_omitted_calls_are_counted() -> None:
    recorder = RunRecorder()
    for n in range(MAX_TOOLS + 3):
        recorder.record_event(StreamEvent("tool_start", tool="look", call_id=str(n), data={"n": n}))
    recorder.record_event(StreamEvent("tool_end", tool="look", call_id=str(MAX_TOOLS + 1), data={}))
    record = get_run_record(recorder)
    assert (len(record.tool_calls), record.omitted_tool_calls) == (MAX_TOOLS, 3)
    assert {use.outcome for use in record.tool_calls} == {"open"}
    assert record.first_text_seconds is None


def test_a_record_survives_json_and_a_damaged_one_is_none() -> None:
    recorder = RunRecorder()
    recorder.set_files([FileRecord("a\nb" * 100, "no")])
    assert get_run_record(recorder).to_json() | {"seconds": 0} == recorder.run_record | {"seconds": 0}
    assert len(get_run_record(recorder).files[0].name) <= 120
    damaged: tuple[object, ...] = (None, [], {"tool_calls": 3}, "x")
    assert [RunRecord.from_json(one) for one in damaged] == [None] * 4


@pytest.mark.parametrize("new_fields", [{"later": 1}, {}])
def test_a_record_of_a_newer_version_can_be_read(new_fields: dict[str, int]) -> None:
    assert RunRecord.from_json({**RunRecord().to_json(), **new_fields}) == RunRecord()
