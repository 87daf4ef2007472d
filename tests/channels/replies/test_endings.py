"""Answers by the reason for which the model ended them, on both platforms."""

from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, EndStream, Finish, RawChunk, ReceivedRequest, Say, Script, ScriptedResponse, Think
from core.errors import LengthLimitError, ProviderError, ProviderUnavailableError
from core.models.finish_reasons import BROKEN_OFF_NOTE, CUT_OFF_NOTE, UNCLEAR_NOTE
from core.tools.tool import to_adk_tool
from core.usage.spending_limits import SpendingLimits
from tests.channels.platforms import list_texts, run_conversation, wait_for_answer, wait_for_texts
from tests.channels.replies.test_reply_end import wait_for_turns
from tests.channels.slack.conftest import short_ping_interval

__all__ = ["short_ping_interval"]

TWO_RETRIES = (0.0, 0.0)

#: A search that Anthropic pauses: text, a search and its result, and a citation in the text after it.
SEARCH_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "x+/="}],
}
CITATION = {"type": "web_search_result_location", "url": "https://a.example", "title": "A", "encrypted_index": "y+/="}
PAUSED_CONTENT = [
    {"type": "thinking", "thinking": "Hm.", "signature": "sig="},
    {"type": "text", "text": "Let me search. "},
    {**SEARCH_USE, "input": {"query": "answer"}},
    SEARCH_RESULT,
    {"type": "text", "text": "So far ", "citations": [CITATION]},
]


def start(index: int, block: dict[str, Any]) -> RawChunk:
    return RawChunk({"type": "content_block_start", "index": index, "content_block": block})


def delta(index: int, **fields: Any) -> RawChunk:
    return RawChunk({"type": "content_block_delta", "index": index, "delta": fields})


PAUSED = [
    start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, type="thinking_delta", thinking="Hm."),
    delta(0, type="signature_delta", signature="sig="),
    start(1, {"type": "text", "text": ""}),
    delta(1, type="text_delta", text="Let me "),
    delta(1, type="text_delta", text="search. "),
    start(2, SEARCH_USE),
    delta(2, type="input_json_delta", partial_json='{"query": '),
    delta(2, type="input_json_delta", partial_json='"answer"}'),
    start(3, SEARCH_RESULT),
    start(4, {"type": "text", "text": "", "citations": []}),
    delta(4, type="citations_delta", citation=CITATION),
    delta(4, type="text_delta", text="So far "),
    Finish("pause_turn", input=10, output=5),
]


def gemini(text: str, reason: str) -> ScriptedResponse:
    """Return an answer of Gemini with a text, or without one, and a finish reason."""
    content = {"role": "model", "parts": [{"text": text}] if text else []}
    return [RawChunk({"candidates": [{"content": content, "finishReason": reason}]}), EndStream()]


def look() -> str:
    """Look at the sky."""
    return "blue"


def play(vendor: str, **core: Any) -> dict[str, Any]:
    return {"core": {"vendor": vendor, **core}}


@pytest.mark.filterwarnings("ignore:NEW_REASON")
@pytest.mark.parametrize(
    ("vendor", "reason", "note"),
    [
        ("gemini", "MALFORMED_FUNCTION_CALL", BROKEN_OFF_NOTE),
        ("gemini", "TOO_MANY_TOOL_CALLS", BROKEN_OFF_NOTE),
        ("gemini", "OTHER", UNCLEAR_NOTE),
        ("gemini", "NEW_REASON", UNCLEAR_NOTE),
        ("gemini", "CONTINUATION", CUT_OFF_NOTE),
        ("openai", "max_tokens", CUT_OFF_NOTE),
        ("openai", "MAX_TOKENS", CUT_OFF_NOTE),
        ("openai", "model_length", CUT_OFF_NOTE),
        ("openai", "new_reason", UNCLEAR_NOTE),
        ("anthropic", "new_reason", UNCLEAR_NOTE),
    ],
)
async def test_half_an_answer_has_a_note(simulator: Any, tmp_path: Path, vendor: str, reason: str, note: str) -> None:
    half = gemini("Part one of", reason) if vendor == "gemini" else [Say("Part one of"), Finish(reason)]
    async with run_conversation(simulator, tmp_path, half, **play(vendor)) as chat:
        await chat.say("tell")
        await wait_for_answer(chat, f"Part one of\n\n{note}")
        await wait_for_turns(chat)


@pytest.mark.parametrize("reason", ["STOP", "eos", "end_turn", "tool-calls"])
async def test_a_real_end_has_no_note(simulator: Any, tmp_path: Path, reason: str) -> None:
    async with run_conversation(simulator, tmp_path, [Say("All of it."), Finish(reason)]) as chat:
        await chat.say("tell")
        await wait_for_turns(chat)
        assert list_texts(chat) == ["All of it."]


@pytest.mark.parametrize("reason", ["network_error", "insufficient_system_resource", "abort"])
async def test_an_answer_that_its_server_broke_off_is_repeated(simulator: Any, tmp_path: Path, reason: str) -> None:
    half = [Say("Half of"), Finish(reason)]
    async with run_conversation(
        simulator, tmp_path, half, "All of it.", half, half, **play("openai", retry_delays=(0.0,))
    ) as chat:
        await chat.say("tell")
        await wait_for_turns(chat)
        assert list_texts(chat) == ["All of it."]
        await chat.say("again")
        await wait_for_texts(chat, lambda found: found and ProviderUnavailableError.public in found[-1])
        assert list_texts(chat)[-1].startswith("Half of")


@pytest.mark.parametrize("text", ["", "Half of"])
async def test_a_malformed_call_is_repeated_and_only_the_last_counts(simulator: Any, tmp_path: Path, text: str) -> None:
    broken = gemini(text, "MALFORMED_FUNCTION_CALL")
    script = [broken, broken, "All of it.", broken, broken, broken]
    async with run_conversation(simulator, tmp_path, *script, **play("gemini", retry_delays=TWO_RETRIES)) as chat:
        await chat.say("tell")
        await wait_for_answer(chat, "All of it.")
        await wait_for_turns(chat)
        assert list_texts(chat) == ["All of it."]
        await chat.say("again")
        ending = f"Half of\n\n{BROKEN_OFF_NOTE}" if text else ProviderError.public
        await wait_for_texts(chat, lambda found: found and ending in found[-1])
        assert len(chat.bot.model.requests) == 6


async def test_an_empty_answer_after_a_tool_is_repeated(simulator: Any, tmp_path: Path) -> None:
    call, empty = CallTool("look"), gemini("", "STOP")
    script = [call, empty, empty, "It is blue.", call, empty, empty, empty, empty]
    settings = play("gemini", retry_delays=TWO_RETRIES, tools=[to_adk_tool(look)])
    async with run_conversation(simulator, tmp_path, *script, **settings) as chat:
        await chat.say("look")
        await wait_for_answer(chat, "It is blue.")
        await wait_for_turns(chat)
        await chat.say("look again")
        await wait_for_texts(chat, lambda found: found and words.NO_ANSWER in found[-1])
        assert len(chat.bot.model.requests) == 8
        await chat.say("and now?")  # not after a tool: an empty answer may be meant
        await wait_for_turns(chat, 3)
        assert len(chat.bot.model.requests) == 9


@pytest.mark.parametrize(
    ("vendor", "reason"), [("openai", "length"), ("anthropic", "max_tokens"), ("gemini", "MAX_TOKENS")]
)
async def test_a_length_limit_amid_the_thinking_is_named(
    simulator: Any, tmp_path: Path, vendor: str, reason: str
) -> None:
    async with run_conversation(simulator, tmp_path, [Think("Hm."), Finish(reason)], **play(vendor)) as chat:
        await chat.say("think")
        await wait_for_texts(chat, lambda found: found and LengthLimitError.public in found[-1])


class PausingAnthropic:
    """Script that pauses its answer `pauses` times, and refuses a request with any other content than it sent."""

    def __init__(self, pauses: int = 1) -> None:
        self.pauses = pauses
        self.count = 0

    def __call__(self, request: ReceivedRequest) -> ScriptedResponse:
        newest = request.body["messages"][-1]
        self.count += 1
        if self.count > 1:
            assert newest == {"role": "assistant", "content": PAUSED_CONTENT * (self.count - 1)}
        return PAUSED if self.count <= self.pauses else [Say("it is 42."), Finish(input=20, output=7, cached=3)]


async def test_a_paused_answer_is_continued(simulator: Any, tmp_path: Path) -> None:
    script: Script = PausingAnthropic(pauses=2)
    async with run_conversation(simulator, tmp_path, script, **play("anthropic")) as chat:
        await chat.say("search")
        await wait_for_texts(chat, lambda found: found and "it is 42." in found[-1])
        (turn,) = await wait_for_turns(chat)
        assert list_texts(chat)[-1].startswith("Let me search. So far Let me search. So far it is 42.")
        assert "https://a.example" in list_texts(chat)[-1]
        assert (turn.usage["input"], turn.usage["output"], turn.usage["cached"]) == (40, 17, 3)
        assert [call["input"] for call in turn.usage["calls"]] == [10, 10, 20]


async def test_an_answer_that_is_paused_for_ever_has_a_note(simulator: Any, tmp_path: Path) -> None:
    script: Script = PausingAnthropic(pauses=99)
    async with run_conversation(simulator, tmp_path, script, **play("anthropic")) as chat:
        await chat.say("search")
        await wait_for_texts(chat, lambda found: found and UNCLEAR_NOTE in found[-1])
        assert len(chat.bot.model.requests) == 6


async def test_a_spending_limit_ends_a_paused_answer(simulator: Any, tmp_path: Path) -> None:
    script: Script = PausingAnthropic(pauses=99)
    limits = SpendingLimits(all=2 * 10**10)
    async with run_conversation(simulator, tmp_path, script, **play("anthropic", limits=limits)) as chat:
        await chat.say("search")
        await wait_for_texts(chat, lambda found: found and "spending limit" in found[-1])
        assert len(chat.bot.model.requests) == 2


@pytest.mark.parametrize("usage", [{"input_tokens": "many"}, None, [3]])
async def test_an_unreadable_usage_counts_by_its_estimate(simulator: Any, tmp_path: Path, usage: Any) -> None:
    end = RawChunk({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    answer = [Say("word " * 50), end, RawChunk({"type": "message_stop"}), EndStream()]
    async with run_conversation(simulator, tmp_path, answer, **play("anthropic")) as chat:
        await chat.say("tell")
        (turn,) = await wait_for_turns(chat)
        assert turn.usage["output"] > 40
