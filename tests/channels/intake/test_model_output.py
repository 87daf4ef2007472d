"""Thinking of model servers that mark it in the text, or want it back, through both platforms' clients."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from chatrig.models import CallTool, Fail, Finish, RawChunk, ReceivedRequest, Say, ScriptedResponse, Step
from tests.channels.platforms import run_conversation, wait_for_answer
from tests.core.models.test_thinking import MARKED

SECRET = "secret"
ANSWER = "The answer is ready."
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

#: Deltas with thoughts before a call, the fields of the message, and those of the call that the server wants back.
FIELDS: dict[str, tuple[Sequence[Mapping[str, Any]], Mapping[str, Any], Mapping[str, Any]]] = {
    "DeepSeek": (
        [{"reasoning_content": 'A "look"\n\ud83d'}, {"reasoning_content": "\ude00é"}, {"tool_calls": [CALL]}],
        {"reasoning_content": 'A "look"\n😀é'},
        {},
    ),
    "vLLM": ([{"reasoning": "Hm."}, {"content": "Wait."}, {"tool_calls": [CALL]}], {"reasoning": "Hm."}, {}),
    "OpenRouter": (
        [
            {"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]},
            {"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "s==", "index": 0}], "tool_calls": [CALL]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x==", "id": "c1", "index": 1}]},
        ],
        {
            "reasoning": "ab",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s=="},
                {"type": "reasoning.encrypted", "data": "x==", "id": "c1", "index": 1},
            ],
        },
        {},
    ),
    "Google": (
        [{"tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "x=="}}}]}],
        {},
        {"extra_content": {"google": {"thought_signature": "x=="}}},
    ),
}


def look() -> str:
    """Look."""
    return "seen"


def list_versions(chat: Any) -> list[str]:
    return [version.text for message in chat.list_replies() for version in message.versions]


@pytest.mark.parametrize("name", [name for name, (_, visible) in MARKED.items() if visible])
async def test_no_version_of_a_message_has_marked_thinking(simulator: Any, tmp_path: Path, name: str) -> None:
    text = MARKED[name][0].replace("Hello", ANSWER).replace("`<think>` and </think> are tags", ANSWER)
    text = text.replace(" <b>!", "").replace("Hel<", "The answer is <").replace(">lo", ">ready.")
    script = [Say(text, pieces=len(text), pace=0.002)]
    async with run_conversation(simulator, tmp_path, script, "Second.") as chat:
        await chat.say("hello")
        await wait_for_answer(chat, ANSWER)
        await chat.say("and now?")
        await wait_for_answer(chat, ANSWER, "Second.")
        assert not [version for version in list_versions(chat) if SECRET in version or "<" in version]
        assert SECRET not in str(chat.bot.model.requests[-1])


async def test_a_lone_closing_tag_takes_the_thinking_back_once(simulator: Any, tmp_path: Path) -> None:
    thinking = f"{SECRET} thoughts. " * 8
    step = Say(f"{thinking}</think>\n\n{ANSWER}", pieces=40, pace=0.02)
    async with run_conversation(simulator, tmp_path, [step], [step], "Without.") as chat:
        await chat.say("hello")
        await wait_for_answer(chat, ANSWER)
        shown = len([version for version in list_versions(chat) if SECRET in version])
        assert shown
        await chat.say("again")
        await wait_for_answer(chat, ANSWER, ANSWER)
        await chat.say("and once more")
        await wait_for_answer(chat, ANSWER, ANSWER, "Without.")
        assert len([version for version in list_versions(chat) if SECRET in version]) == shown
        assert SECRET not in str(chat.bot.model.requests[-1])


@pytest.mark.parametrize("name", FIELDS)
async def test_a_server_gets_its_thoughts_back_with_the_results(simulator: Any, tmp_path: Path, name: str) -> None:
    deltas, message, call = FIELDS[name]

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if not request.tool_results:
            assert "reasoning" not in str(request.body["messages"])  # of the turn before
            return [*(RawChunk({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas), Finish("tool_calls")]
        row = request.body["messages"][-2]
        [returned] = row["tool_calls"]
        fields = {key: value for key, value in row.items() if key.startswith("reasoning")}
        extras = {key: value for key, value in returned.items() if key not in ("id", "type", "function")}
        return ANSWER if (fields, extras) == (message, call) else Fail(400, f"{fields} {extras}")

    wanted = f"Wait.\n\n{ANSWER}" if name == "vLLM" else ANSWER
    async with run_conversation(simulator, tmp_path, answer, core={"tools": [look]}) as chat:
        await chat.say("look")
        await wait_for_answer(chat, wanted)
        await chat.say("look again")
        await wait_for_answer(chat, wanted, wanted)


@pytest.mark.parametrize("block", [{}, {"signature": ""}], ids=["no signature", "an empty one"])
async def test_an_anthropic_server_gets_unsigned_thinking_back(
    simulator: Any, tmp_path: Path, block: Mapping[str, Any]
) -> None:
    start = {"type": "thinking", "thinking": "", **block}
    steps: list[Step] = [
        RawChunk({"type": "content_block_start", "index": 7, "content_block": start}),
        RawChunk({"type": "content_block_delta", "index": 7, "delta": {"type": "thinking_delta", "thinking": "Hm."}}),
        RawChunk({"type": "content_block_stop", "index": 7}),
        CallTool("look", {}, id="c1"),
    ]

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        blocks = [block for row in request.body["messages"] for block in row["content"] if block["type"] == "thinking"]
        if not request.tool_results:
            return Fail(400, f"{blocks}") if blocks else steps
        return ANSWER if blocks == [{"type": "thinking", "thinking": "Hm.", **block}] else Fail(400, f"{blocks}")

    async with run_conversation(simulator, tmp_path, answer, core={"tools": [look], "vendor": "anthropic"}) as chat:
        await chat.say("look")
        await wait_for_answer(chat, ANSWER)
        await chat.say("look again")
        await wait_for_answer(chat, ANSWER, ANSWER)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ('{"n": ', "Expecting value at character 6"),
        ("[1]", "no JSON object"),
        ('{"n": ' + "[" * 200 + "]" * 200 + "}", "levels of nesting"),
        ('{"n": NaN}', "NaN"),
    ],
)
async def test_a_model_is_told_what_is_wrong_with_its_json(
    simulator: Any, tmp_path: Path, raw: str, fault: str
) -> None:
    received = list[Any]()

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        received.extend(result.content for result in request.tool_results)
        return ANSWER if received else CallTool("look", {}, id="c1", raw=raw)

    async with run_conversation(simulator, tmp_path, answer, core={"tools": [look]}) as chat:
        await chat.say("look")
        await wait_for_answer(chat, ANSWER)
    [result] = received
    assert "look was not called: its arguments are no valid JSON object" in str(result)
    assert fault in str(result)
