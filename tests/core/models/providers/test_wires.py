"""Faults of each vendor's API, as callers of `ModelAdapter` see them."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from chatrig.models import (
    CallTool,
    CorruptChunk,
    DropConnection,
    EndStream,
    Fail,
    Finish,
    RawChunk,
    Say,
    SendFile,
    Stall,
    Step,
    Think,
)
from core.errors import (
    ProviderError,
    ProviderRateLimitError,
    ProviderStreamError,
    ProviderTimeoutError,
    ProviderUnavailableError,
)
from core.models.adapter import ModelAdapter
from core.models.providers.coalescing import DeltaSchedule
from core.models.retries_and_fallbacks import is_retraction
from tests.core.models.conftest import ConnectedProvider

#: Valid JSON that is no chunk of the vendor's API.
NONSENSE = {
    "anthropic": RawChunk({"type": "message_start"}),
    "gemini": RawChunk({"candidates": [{"content": {"parts": "oops"}}]}),
    "openai": RawChunk({"choices": [{"index": 0, "delta": "oops"}]}),
}
MAY_PASS: dict[str, Step | None] = {
    "500": Fail(500),
    "502 of a proxy": Fail(502, body="<html>bad gateway</html>"),
    "503": Fail(503),
    "overloaded": Fail(529, code="overloaded_error"),
    "429": Fail(429),
    "429 with a time to wait": Fail(429, retry_after=0.01),
    "a cut": DropConnection(),
    "an end too soon": EndStream(),
    "a stall": Stall(),
    "no JSON": CorruptChunk(),
    "nonsense": None,  # see `NONSENSE`
}
FIRST_STEPS: list[Step] = [Think("Hm."), Say("Good mor", pieces=2), CallTool("add", {"a": 1}, "c1")]


CUT_OFF = {"anthropic": "max_tokens", "gemini": "MAX_TOKENS", "openai": "length"}


PNG = b"\x89PNG\r\n\x1a\n" + bytes(2_000)

both_modes = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streaming"])


def stream_responses(
    wire: ConnectedProvider, *contents: types.Content, stream: bool = True, idle_seconds: float = 30
) -> AsyncGenerator[LlmResponse, None]:
    """Return the response stream of a request, as the bot makes it.

    Deltas are merged, and retries follow after 10 ms.

    Args:
        idle_seconds: the maximum time without an event of the provider.
    """
    adapter = ModelAdapter(
        model="the-model",
        provider=wire.provider,
        schedule=DeltaSchedule(),
        idle_seconds=idle_seconds,
        retry_delays=(0.01, 0.01),
    )
    return adapter.generate_content_async(LlmRequest(contents=list(contents or [types.UserContent("Hi")])), stream)


async def collect_responses(
    wire: ConnectedProvider, *contents: types.Content, stream: bool = True, idle_seconds: float = 30
) -> list[LlmResponse]:
    async with aclosing(stream_responses(wire, *contents, stream=stream, idle_seconds=idle_seconds)) as responses:
        return [response async for response in responses]


def text(responses: Sequence[LlmResponse]) -> str:
    parts = [part for response in responses if response.content for part in response.content.parts or ()]
    return "".join(part.text or "" for part in parts if not part.thought)


def error_step(what: str, vendor: str) -> Step:
    return MAY_PASS[what] or NONSENSE[vendor]


@pytest.mark.parametrize(
    ("before", "stream"),
    [([], True), (FIRST_STEPS, True), (FIRST_STEPS, False)],
    ids=["before the first word", "in the middle", "in the middle of a whole one"],
)
async def test_a_transient_error_is_retried_and_the_text_appears_once(
    wire: ConnectedProvider, vendor: str, before: list[Step], stream: bool, subtests: pytest.Subtests
) -> None:
    for what in MAY_PASS:
        with subtests.test(what):
            wire.server.add_responses([*before, error_step(what, vendor)], [Say("Good day", pieces=3)])
            responses = await collect_responses(wire, stream=stream, idle_seconds=1 if what == "a stall" else 30)
            *partials, final = responses
            assert [response.partial for response in responses] == [True] * len(partials) + [False]
            assert text([final]) == "Good day"
            retractions = [number for number, response in enumerate(partials) if is_retraction(response)]
            assert len(retractions) == (stream and bool(before))
            if stream:
                assert text(partials[retractions[0] :] if retractions else partials) == "Good day"
            first, second = wire.server.requests
            assert first == second
        wire.server.requests.clear()


def image_chunk(vendor: str, data: str, *, text: str = "") -> RawChunk:
    """Return a vendor's streamed chunk with a text and a PNG image.

    Args:
        vendor: "gemini", or any other for OpenAI's format.
        data: the image in base64.
    """
    if vendor == "gemini":
        parts = [*([{"text": text}] if text else []), {"inlineData": {"mimeType": "image/png", "data": data}}]
        return RawChunk({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}]})
    delta = {"content": text, "images": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]}
    return RawChunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


@both_modes
@pytest.mark.parametrize("chunks", ["several chunks", "one chunk"])
@pytest.mark.parametrize("vendor", ["gemini", "openai"])
async def test_an_answer_that_breaks_off_amid_an_image_has_it_once(
    wire: ConnectedProvider, vendor: str, chunks: str, stream: bool, subtests: pytest.Subtests
) -> None:
    png = b64encode(PNG).decode()
    pieces: list[Step] = [Say("Here"), SendFile("image/png", PNG)]
    chunk = pieces if chunks == "several chunks" else [image_chunk(vendor, png, text="Here")]
    faults = {**MAY_PASS, "truncated base64": image_chunk(vendor, png[:-3])}
    for what, fault in faults.items():
        with subtests.test(what):
            wire.server.add_responses([*chunk, fault or NONSENSE[vendor]], [Say("Here:"), SendFile("image/png", PNG)])
            *partials, final = await collect_responses(wire, stream=stream, idle_seconds=1 if what == "a stall" else 30)
            parts = (final.content and final.content.parts) or []
            assert [part.text or (part.inline_data and part.inline_data.data) for part in parts] == ["Here:", PNG]
            assert sum(map(is_retraction, partials)) == stream
        wire.server.requests.clear()


async def test_a_lasting_transient_error_is_tried_three_times(
    wire: ConnectedProvider, vendor: str, subtests: pytest.Subtests
) -> None:
    kinds = {"429": ProviderRateLimitError, "a stall": ProviderTimeoutError, "an end too soon": ProviderStreamError}
    for what in MAY_PASS:
        with subtests.test(what):
            wire.server.add_responses(*[[Say("Good mor"), error_step(what, vendor)]] * 3)
            with pytest.raises(ProviderError) as raised:
                await collect_responses(wire, idle_seconds=1 if what == "a stall" else 30)
            assert type(raised.value) is kinds.get(what.partition(" with")[0], ProviderUnavailableError)
            assert "scripted failure" not in str(raised.value)
            assert len(wire.server.requests) == 3
        wire.server.requests.clear()


@both_modes
async def test_an_answer_cut_off_by_the_token_limit_keeps_its_finish_reason(
    wire: ConnectedProvider, vendor: str, stream: bool
) -> None:
    wire.server.add_responses([Say("Once upon", pieces=2), Finish(CUT_OFF[vendor])], "never asked for")
    final = (await collect_responses(wire, stream=stream))[-1]
    assert (text([final]), final.error_code) == ("Once upon", None)
    assert final.finish_reason is types.FinishReason.MAX_TOKENS
    assert len(wire.server.requests) == 1


async def test_leaving_a_later_attempt_closes_its_connection(wire: ConnectedProvider) -> None:
    wire.server.add_responses([Say("Hel"), DropConnection()], [Say("Hello"), Stall()], "never asked for")
    async with aclosing(stream_responses(wire)) as responses:
        received = [await anext(responses) for _ in range(3)]
    assert [is_retraction(response) for response in received] == [False, True, False]
    await wire.server.wait_for_disconnects(1)
    assert len(wire.server.requests) == 2
