"""What a turn was made of, as its run tells it."""

import asyncio
from typing import Any

import pytest

from core.agents.events import StreamEvent
from core.agents.run_record import MAX_TOOLS, FileRecord, RunRecord, RunRecorder
from core.errors import ProviderRequestError
from core.models.provider import Done, Failed, ToolCall
from core.sessions.history import DEFAULT_MAX_TURNS
from core.tools.tool import Tool
from tests.fixtures.conversation import Converse, ScriptedProvider

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
RUN = "t1"


async def waits(arguments: dict[str, Any]) -> str:
    await asyncio.sleep(arguments["n"] / 100)
    if arguments["n"] == 3:
        raise ValueError("three is too many")
    return "slept"


def calls(*numbers: int) -> list[Any]:
    return [*(ToolCall(f"c{n}", "wait", {"n": n}) for n in numbers), Done()]


def kept(clerk: RunRecorder) -> RunRecord:
    receipt = RunRecord.from_json(clerk.run_record)
    assert receipt is not None
    return receipt


async def test_calls_that_are_made_side_by_side_have_each_its_own_time_and_end(converse: Converse) -> None:
    provider = ScriptedProvider(calls(1, 3, 200), "Done.")
    conversation = await converse(provider, tools=[Tool("wait", "Waits.", waits, SCHEMA)])
    clerk = RunRecorder()
    for event in await conversation.events("go", run_id=RUN):
        clerk.record_event(event)
    receipt = kept(clerk)
    assert [(use.arguments, use.outcome) for use in receipt.tool_calls] == [
        ('{"n": 1}', "done"),
        ('{"n": 3}', "failed"),
        ('{"n": 200}', "done"),
    ]
    short, _, long = (use.seconds for use in receipt.tool_calls)
    assert short is not None
    assert long is not None
    assert short < 1.9 < long
    assert "three is too many" in receipt.tool_calls[1].error
    assert receipt.first_text_seconds is not None
    assert 2.0 <= receipt.first_text_seconds <= receipt.seconds


async def test_what_an_earlier_attempt_has_called_is_told_as_such(converse: Converse) -> None:
    refused = [Failed(ProviderRequestError("no"))]
    provider = ScriptedProvider(calls(1, 3), refused, calls(2), "Done.")
    conversation = await converse(provider, tools=[Tool("wait", "Waits.", waits, SCHEMA)])
    first, second = RunRecorder(), RunRecorder()
    for event in await conversation.events("go", run_id=RUN):
        first.record_event(event)
    assert [(use.id, use.outcome) for use in kept(first).tool_calls] == [("c1", "done"), ("c3", "failed")]
    for event in await conversation.events("go", run_id=RUN):
        second.record_event(event)
    uses = kept(second).tool_calls
    assert [(use.id, use.outcome, use.is_from_earlier_attempt) for use in uses] == [
        ("c1", "done", True),
        ("c3", "failed", True),
        ("c2", "done", False),
    ]
    assert "three is too many" in uses[1].error


async def test_how_much_of_the_conversation_was_read_is_told_and_by_what_it_was_cut(converse: Converse) -> None:
    conversation = await converse(ScriptedProvider(*["Yes."] * 4), budget=100)
    await conversation.reply("first")
    clerk = RunRecorder()
    for event in await conversation.events("second", run_id=RUN):
        clerk.record_event(event)
    history = kept(clerk).history
    assert history is not None
    assert (history.messages, history.limit, history.budget) == (2, "", 100)
    await conversation.insert_message("user", "long", tokens=90)
    await conversation.insert_message("assistant", "answer", tokens=9)
    cut = RunRecorder()
    for event in await conversation.events("third", run_id="t3"):
        cut.record_event(event)
    history = kept(cut).history
    assert history is not None
    assert (history.messages, history.tokens, history.limit) == (2, 99, "tokens")


async def test_no_more_turns_than_are_read_cut_it_too(converse: Converse) -> None:
    conversation = await converse(ScriptedProvider("Yes."))
    for _ in range(DEFAULT_MAX_TURNS + 2):
        await conversation.insert_message("user", "question")
        await conversation.insert_message("assistant", "answer")
    clerk = RunRecorder()
    for event in await conversation.events("go", run_id=RUN):
        clerk.record_event(event)
    history = kept(clerk).history
    assert history is not None
    assert history.limit == "turns"
    assert (history.turns, history.messages) == (21, 42)


def test_what_had_not_ended_is_open_and_what_is_too_much_is_counted() -> None:
    clerk = RunRecorder()
    for n in range(MAX_TOOLS + 3):
        clerk.record_event(StreamEvent("tool_start", tool="look", call_id=str(n), data={"n": n}))
    clerk.record_event(StreamEvent("tool_end", tool="look", call_id=str(MAX_TOOLS + 1), data={}))
    receipt = kept(clerk)
    assert (len(receipt.tool_calls), receipt.omitted_tool_calls) == (MAX_TOOLS, 3)
    assert {use.outcome for use in receipt.tool_calls} == {"open"}
    assert receipt.first_text_seconds is None


def test_a_receipt_comes_back_as_it_was_kept_and_a_damaged_one_is_none() -> None:
    clerk = RunRecorder()
    clerk.set_files([FileRecord("a\nb" * 100, "no")])
    assert kept(clerk).to_json() | {"seconds": 0} == clerk.run_record | {"seconds": 0}
    assert len(kept(clerk).files[0].name) <= 120
    damaged: tuple[object, ...] = (None, [], {"tool_calls": 3}, "x")
    assert [RunRecord.from_json(one) for one in damaged] == [None] * 4


@pytest.mark.parametrize("more", [{"later": 1}, {}])
def test_a_receipt_of_a_newer_version_can_be_read(more: dict[str, int]) -> None:
    assert RunRecord.from_json({**RunRecord().to_json(), **more}) == RunRecord()
