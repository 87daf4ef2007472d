"""Files and sources in model answers, in each vendor's wire format."""

import io
import wave

import pytest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from chatrig.models import Cite, Say, SendFile
from core.models.grounding import READ_URLS_KEY, Source, find_sources
from core.models.provider import (
    Done,
    Grounding,
    Media,
    ModelMessage,
    ModelRequest,
    Text,
)
from core.models.providers import anthropic, openai
from tests.core.models.conftest import ConnectedProvider

PNG = b"\x89PNG\r\n\x1a\n" + bytes(2_000)
SAMPLES = bytes(range(100)) * 2
HISTORY = (
    ModelMessage("user", (Text("Draw"),)),
    ModelMessage("assistant", (Text("Here:"), Media("image/png", PNG, name="image-1.png"))),
    ModelMessage("user", (Text("Bluer"),)),
)


@pytest.mark.parametrize("vendor", ["gemini", "openai"])
async def test_an_image_of_a_model_comes_between_its_texts(wire: ConnectedProvider) -> None:
    wire.server.add_responses([Say("Here:"), SendFile("image/png", PNG), Say("and done.")])
    *events, done = await wire.collect_events()
    assert [event for event in events if event != Text("")] == [
        Text("Here:"),
        Media("image/png", PNG),
        Text("and done."),
    ]
    assert isinstance(done, Done)


@pytest.mark.parametrize("vendor", ["gemini", "openai"])
async def test_raw_sound_becomes_a_file_that_a_player_opens(wire: ConnectedProvider) -> None:
    halves = SAMPLES[:100], SAMPLES[100:]
    kind = "audio/L16;codec=pcm;rate=24000"
    pieces = [SendFile(kind, half) for half in halves] if wire.provider.name == "openai" else [SendFile(kind, SAMPLES)]
    wire.server.add_responses(pieces)
    [sound] = [event for event in await wire.collect_events() if isinstance(event, Media)]
    assert sound.mime_type == "audio/wav"
    with wave.open(io.BytesIO(sound.data or b"")) as reader:
        assert (reader.getframerate(), reader.readframes(reader.getnframes())) == (24_000, SAMPLES)


async def test_the_pages_of_an_answer_are_known_with_every_vendor(wire: ConnectedProvider) -> None:
    cited = [Cite("https://example.org/a", "A"), Cite("https://example.net/b", "B")]
    wire.server.add_responses([Say("So it is."), *cited])
    chunks = [
        chunk
        for event in await wire.collect_events()
        if isinstance(event, Grounding) and event.metadata is not None
        for chunk in event.metadata.grounding_chunks or ()
    ]
    pages = [(chunk.web.uri, chunk.web.title) for chunk in chunks if chunk.web is not None]
    assert pages == [("https://example.org/a", "A"), ("https://example.net/b", "B")]


async def test_gemini_gets_its_own_image_back(gemini_wire: ConnectedProvider) -> None:
    gemini_wire.server.add_responses("Blue.")
    await gemini_wire.collect_events(*HISTORY)
    answer = gemini_wire.server.requests[0]["contents"][1]
    assert answer["role"] == "model"
    assert [list(part) for part in answer["parts"]] == [["text"], ["inlineData"]]


def test_openai_and_anthropic_get_a_models_image_from_the_user() -> None:
    request = ModelRequest("m", HISTORY)
    body = openai.build_body(request, "api.openai.com")["messages"]
    assert body[1] == {"role": "assistant", "content": "Here:[my file: image-1.png]"}
    assert [part["type"] for part in body[2]["content"]] == ["text", "image_url", "text"]
    blocks = anthropic.build_body(request)["messages"]
    assert [block["text"] for block in blocks[1]["content"]] == ["Here:", "[my file: image-1.png]"]
    assert [block["type"] for block in blocks[2]["content"]] == ["text", "image", "text"]


def test_openai_is_asked_for_sound_and_each_vendor_for_its_search() -> None:
    config = types.GenerateContentConfig(
        response_modalities=["TEXT", "AUDIO"], tools=[types.Tool(google_search=types.GoogleSearch())]
    )
    request = ModelRequest("m", HISTORY[:1], config=config)
    body = openai.build_body(request, "api.openai.com")
    assert (body["modalities"], body["audio"]) == (["text", "audio"], {"voice": "alloy", "format": "pcm16"})
    assert body["web_search_options"] == {}
    assert "web_search_options" not in openai.build_body(request, "localhost")
    assert [tool["name"] for tool in anthropic.build_body(request)["tools"]] == ["web_search"]


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "https://user@evil.example",
        "https://a.example/|x>",
        "ftp://a.example",
        "https://a b",
        "",
        "//",
    ],
)
def test_an_address_that_no_link_can_hold_is_no_source(url: str) -> None:
    response = LlmResponse(custom_metadata={READ_URLS_KEY: [url, "https://good.example/"]})
    assert find_sources(response) == [Source("https://good.example/")]
