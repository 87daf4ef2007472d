"""Images, sources and endings of answers of models, on both platforms."""

from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.genai import types

from channels.i18n import messages as words
from channels.turns.sources import MAX_LINKS, add_sources
from chatrig.models import (
    CallTool,
    Cite,
    DropConnection,
    EndStream,
    Fail,
    Finish,
    RawChunk,
    ReceivedRequest,
    Say,
    Script,
    ScriptedResponse,
    SendFile,
    Step,
    Think,
)
from core.errors import (
    LengthLimitError,
    ProviderError,
    ProviderRateLimitError,
    ProviderUnavailableError,
    StoreError,
    TurnLostError,
)
from core.models.finish_reasons import (
    BROKEN_OFF_NOTE,
    CUT_OFF_NOTE,
    EMPTY_FILE_NOTE,
    FILE_TOO_LARGE_NOTE,
    UNCLEAR_NOTE,
)
from core.models.grounding import Source
from core.tools.tool import to_adk_tool
from core.turns.store import TurnStore
from core.usage.spending_limits import SpendingLimits
from tests.channels.platforms import (
    list_texts,
    run_conversation,
    wait_for_answer,
    wait_for_texts,
)
from tests.channels.replies.test_files import count_artifacts
from tests.channels.slack.conftest import short_ping_interval
from tests.channels.turns.test_reply_end import create_crash, wait_for_turns
from tests.channels.wiring import wait_until

__all__ = ["short_ping_interval"]

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 500
OTHER_PNG = PNG + b"bluer"
GEMINI: dict[str, Any] = {"core": {"vendor": "gemini"}}
SAY = words.messages_for("en")


def screenshot() -> types.Part:
    """Return a picture."""
    return types.Part.from_bytes(data=PNG, mime_type="image/png")


async def test_an_image_of_a_model_is_a_file_of_its_reply(simulator: Any, tmp_path: Path) -> None:
    drawing = [Say("Here:"), SendFile("image/png", PNG), Say("Bluer?")]
    async with run_conversation(simulator, tmp_path, drawing, SendFile("image/png", OTHER_PNG), **GEMINI) as chat:
        await chat.say("draw")
        await wait_for_texts(chat, lambda found: found and "Bluer?" in found[-1])
        await wait_for_turns(chat)
        assert list_texts(chat) == ["Here:\n\n📎 `image-1.png`\n\nBluer?"]
        assert chat.list_files() == [("image-1.png", PNG)]
        await chat.say("yes, draw it bluer")
        await wait_for_texts(chat, lambda found: found and found[-1] == words.ONLY_FILES)
        await wait_for_turns(chat, 2)
        assert [data for _, data in chat.list_files()] == [PNG, OTHER_PNG]
        parts = chat.bot.model.requests[1]["contents"][1]["parts"]
        assert ["inlineData" in part for part in parts] == [False, True, False]
        await chat.say("reset")
        await wait_for_texts(chat, lambda found: words.RESET_DONE in found)
        assert await count_artifacts(chat) == 0


@pytest.mark.parametrize("moment", ["before the answer is stored", "before it is shown as done"])
async def test_an_image_is_posted_once_despite_a_crash(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    drawing = [Say("Two:"), SendFile("image/png", PNG), SendFile("image/png", OTHER_PNG)]
    method = "save_answer" if moment == "before the answer is stored" else "end"
    async with run_conversation(simulator, tmp_path, drawing, **GEMINI) as chat:

        async def die(*_values: Any) -> None:
            with suppress(StoreError):
                await create_crash(chat)()
            raise TurnLostError("the process died here")

        with monkeypatch.context() as death:
            death.setattr(TurnStore, method, die)
            await chat.say("draw")
            await wait_until(chat.bot.worker._stopping.is_set)
            await chat.bot.worker.stop(5)
    async with run_conversation(simulator, tmp_path, [Say("One:"), SendFile("image/png", PNG)], **GEMINI) as chat:
        assert (await wait_for_turns(chat))[0].state == "done"
        is_generated_again = method == "save_answer"
        assert list_texts(chat) == ["One:" if is_generated_again else "Two:"]
        assert [data for _, data in chat.list_files()] == ([PNG] if is_generated_again else [PNG, OTHER_PNG])
        assert await count_artifacts(chat) == len(chat.list_files())


def image_chunk(vendor: str, kind: str, data: str, text: str) -> RawChunk:
    """Return a vendor's streamed chunk with a text and an image.

    Args:
        vendor: "gemini", or any other for OpenAI's format.
        kind: the media type of the image.
        data: the image in base64.
    """
    if vendor == "gemini":
        parts = [{"text": text}, {"inlineData": {"mimeType": kind, "data": data}}]
        return RawChunk({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}]})
    delta = {"content": text, "images": [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}]}
    return RawChunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


FAULTS: dict[str, tuple[Any, str]] = {
    "dropped connection": (DropConnection(), ProviderUnavailableError.public),
    "500": (Fail(500), ProviderUnavailableError.public),
    "429": (Fail(429), ProviderRateLimitError.public),
    "truncated base64": (None, ProviderUnavailableError.public),  # each vendor's own
}


@pytest.mark.parametrize("fault", list(FAULTS))
@pytest.mark.parametrize("vendor", ["gemini", "openai"])
async def test_a_provider_that_fails_amid_an_image_loses_nothing(
    simulator: Any, tmp_path: Path, vendor: str, fault: str
) -> None:
    step, sentence = FAULTS[fault]
    steps = [Say("Here"), SendFile("image/png", PNG)]
    broken = [*steps, step] if step else [image_chunk(vendor, "image/png", b64encode(PNG).decode()[:-3], "Here")]
    drawing = [Say("Here:"), SendFile("image/png", PNG)]
    async with run_conversation(simulator, tmp_path, broken, drawing, core={"vendor": vendor}) as chat:
        await chat.say("draw")
        await wait_for_texts(chat, lambda found: found and sentence in found[-1])
        await chat.simulator.wait_for(lambda: any(words.RETRY in message.buttons for message in chat.list_replies()))
        assert [text.startswith("Here") for text in list_texts(chat)] == [step is not None]
        assert not chat.list_files()
        await chat.press(words.RETRY)
        await wait_for_answer(chat, "Here:")
        await wait_for_turns(chat, 2)
        assert chat.list_files() == [("image-1.png", PNG)]


@pytest.mark.parametrize("vendor", ["gemini", "openai"])
async def test_an_image_of_an_unknown_type_is_a_file(simulator: Any, tmp_path: Path, vendor: str) -> None:
    data = b64encode(PNG).decode()
    unheard = image_chunk(vendor, "image/x-unheard-of", data, "Here:")
    untyped = image_chunk(vendor, "", data, "Again:")
    async with run_conversation(simulator, tmp_path, [unheard], [untyped], core={"vendor": vendor}) as chat:
        await chat.say("draw")
        await wait_for_answer(chat, "Here:")
        await wait_for_turns(chat)
        assert chat.list_files() == [("image-1.png", PNG)]
        await chat.say("once more")
        await wait_for_texts(chat, lambda found: found[-1] == "Again:")
        await wait_for_turns(chat, 2)
        assert chat.list_files()[1:] == [("image-1.png", PNG)]


@pytest.mark.parametrize(
    ("size", "sentence"), [(0, EMPTY_FILE_NOTE), (21 * 2**20, FILE_TOO_LARGE_NOTE)], ids=["empty", "21 MB"]
)
@pytest.mark.parametrize("vendor", ["gemini", "openai"])
async def test_an_empty_or_large_image_ends_in_a_sentence(
    simulator: Any, tmp_path: Path, vendor: str, size: int, sentence: str
) -> None:
    image = SendFile("image/png", bytes(size))
    async with run_conversation(
        simulator, tmp_path, [Say("Here:"), image], image, "Sorry.", core={"vendor": vendor}
    ) as chat:
        await chat.say("draw")
        await wait_for_answer(chat, f"Here:\n\n{sentence}")
        await chat.say("without words")
        await wait_for_texts(chat, lambda found: found[-1] == sentence)
        await chat.say("and now?")
        await wait_for_texts(chat, lambda found: found[-1] == "Sorry.")
        await wait_for_turns(chat, 3)
        assert not chat.list_files()


async def test_a_picture_that_a_tool_returns_is_posted_once_and_shown_to_the_model(
    simulator: Any, tmp_path: Path
) -> None:
    tools = {"tools": [to_adk_tool(screenshot)]}
    async with run_conversation(simulator, tmp_path, CallTool("screenshot"), "Here you see it.", core=tools) as chat:
        await chat.say("take a picture")
        await wait_for_answer(chat, "Here you see it.")
        await wait_for_turns(chat)
        assert [data for _, data in chat.list_files()] == [PNG]
        assert chat.bot.model.requests[1]["messages"][-1]["content"][0]["type"] == "image_url"


@pytest.mark.parametrize("vendor", ["openai", "gemini", "anthropic"])
async def test_sources_are_numbered_links_below_the_answer(simulator: Any, tmp_path: Path, vendor: str) -> None:
    answer = [Say("It rains."), Cite("https://weather.example/today?a=1", "W](x) @everyone"), Cite("javascript:x", "X")]
    async with run_conversation(simulator, tmp_path, answer, core={"vendor": vendor}) as chat:
        await chat.say("rain?")
        text = (await wait_for_texts(chat, lambda found: found and "Sources" in found[-1]))[-1]
        await wait_for_turns(chat)
        assert "weather.example" in text
        assert "everyone" not in text
        assert "javascript" not in text
        assert text.endswith("Sources: [1 weather.example](https://weather.example/today?a=1)")
        [row] = await chat.bot.list_turns()
        assert row.run_record["sources"] == ["https://weather.example/today?a=1"]


def test_a_link_of_a_source_shows_the_host_that_it_leads_to() -> None:
    google = "https://vertexaisearch.cloud.google.com/grounding-api-redirect/abc"
    cases = {
        Source("https://a.example/(b)_[c]", "Wikipedia.org"): "[1 a.example](https://a.example/%28b%29_[c])",
        Source(google, "en.wikipedia.org"): f"[1]({google}) `en.wikipedia.org` (Google)",
        Source(google, "free money.example"): f"[1 vertexaisearch.cloud.google.com]({google})",
        Source("https://\u0430pple.example/", "apple"): "[1 xn--pple-43d.example](https://%D0%B0pple.example/)",
    }
    for source, link in cases.items():
        assert add_sources("So.", [source], SAY) == f"So.\n\nSources: {link}"


def test_at_most_eight_sources_are_shown_and_the_others_counted() -> None:
    sources = [Source(f"https://{number}.example/") for number in range(MAX_LINKS + 3)]
    line = add_sources("So.", sources, SAY)
    assert line.count("](") == MAX_LINKS
    assert line.endswith(" · +3")
    assert add_sources("", sources, SAY) == ""


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


PAUSED: list[Step] = [
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


def answer_of_gemini(text: str, reason: str) -> ScriptedResponse:
    """Return an answer of Gemini with a text, or without one, and a finish reason."""
    content = {"role": "model", "parts": [{"text": text}] if text else []}
    return [RawChunk({"candidates": [{"content": content, "finishReason": reason}]}), EndStream()]


def look() -> str:
    """Look at the sky."""
    return "blue"


def set_vendor(vendor: str, **core: Any) -> dict[str, Any]:
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
    half = answer_of_gemini("Part one of", reason) if vendor == "gemini" else [Say("Part one of"), Finish(reason)]
    async with run_conversation(simulator, tmp_path, half, **set_vendor(vendor)) as chat:
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
        simulator, tmp_path, half, "All of it.", half, half, **set_vendor("openai", retry_delays=(0.0,))
    ) as chat:
        await chat.say("tell")
        await wait_for_turns(chat)
        assert list_texts(chat) == ["All of it."]
        await chat.say("again")
        await wait_for_texts(chat, lambda found: found and ProviderUnavailableError.public in found[-1])
        assert list_texts(chat)[-1].startswith("Half of")


@pytest.mark.parametrize("text", ["", "Half of"])
async def test_a_malformed_call_is_repeated_and_only_the_last_counts(simulator: Any, tmp_path: Path, text: str) -> None:
    broken = answer_of_gemini(text, "MALFORMED_FUNCTION_CALL")
    script = [broken, broken, "All of it.", broken, broken, broken]
    async with run_conversation(simulator, tmp_path, *script, **set_vendor("gemini", retry_delays=TWO_RETRIES)) as chat:
        await chat.say("tell")
        await wait_for_answer(chat, "All of it.")
        await wait_for_turns(chat)
        assert list_texts(chat) == ["All of it."]
        await chat.say("again")
        ending = f"Half of\n\n{BROKEN_OFF_NOTE}" if text else ProviderError.public
        await wait_for_texts(chat, lambda found: found and ending in found[-1])
        assert len(chat.bot.model.requests) == 6


async def test_an_empty_answer_after_a_tool_is_repeated(simulator: Any, tmp_path: Path) -> None:
    call, empty = CallTool("look"), answer_of_gemini("", "STOP")
    script = [call, empty, empty, "It is blue.", call, empty, empty, empty, empty]
    settings = set_vendor("gemini", retry_delays=TWO_RETRIES, tools=[to_adk_tool(look)])
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
    async with run_conversation(simulator, tmp_path, [Think("Hm."), Finish(reason)], **set_vendor(vendor)) as chat:
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
    async with run_conversation(simulator, tmp_path, script, **set_vendor("anthropic")) as chat:
        await chat.say("search")
        await wait_for_texts(chat, lambda found: found and "it is 42." in found[-1])
        (turn,) = await wait_for_turns(chat)
        assert list_texts(chat)[-1].startswith("Let me search. So far Let me search. So far it is 42.")
        assert "https://a.example" in list_texts(chat)[-1]
        assert (turn.usage["input"], turn.usage["output"], turn.usage["cached"]) == (40, 17, 3)
        assert [call["input"] for call in turn.usage["calls"]] == [10, 10, 20]


async def test_an_answer_that_is_paused_for_ever_has_a_note(simulator: Any, tmp_path: Path) -> None:
    script: Script = PausingAnthropic(pauses=99)
    async with run_conversation(simulator, tmp_path, script, **set_vendor("anthropic")) as chat:
        await chat.say("search")
        await wait_for_texts(chat, lambda found: found and UNCLEAR_NOTE in found[-1])
        assert len(chat.bot.model.requests) == 6


async def test_a_spending_limit_ends_a_paused_answer(simulator: Any, tmp_path: Path) -> None:
    script: Script = PausingAnthropic(pauses=99)
    limits = SpendingLimits(all=2 * 10**10)
    async with run_conversation(simulator, tmp_path, script, **set_vendor("anthropic", limits=limits)) as chat:
        await chat.say("search")
        await wait_for_texts(chat, lambda found: found and "spending limit" in found[-1])
        assert len(chat.bot.model.requests) == 2


@pytest.mark.parametrize("usage", [{"input_tokens": "many"}, None, [3]])
async def test_an_unreadable_usage_counts_by_its_estimate(simulator: Any, tmp_path: Path, usage: Any) -> None:
    end = RawChunk({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    answer = [Say("word " * 50), end, RawChunk({"type": "message_stop"}), EndStream()]
    async with run_conversation(simulator, tmp_path, answer, **set_vendor("anthropic")) as chat:
        await chat.say("tell")
        (turn,) = await wait_for_turns(chat)
        assert turn.usage["output"] > 40
