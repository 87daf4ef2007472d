"""Provider for OpenAI's API and compatible servers, with their differences."""

import asyncio
import json
from typing import Any

import pytest
from google.genai import types

from chatrig.models import (
    Fail,
    RawChunk,
    Say,
    Stall,
)
from core.errors import (
    ContentBlockedError,
    ContextLengthError,
    ModelNotFoundError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderUnavailableError,
)
from core.models.provider import Done, Media, ModelMessage, Text, Thought
from core.usage.meter import Usage
from tests.core.models.conftest import ConnectedProvider


def delta(**delta: Any) -> RawChunk:
    return RawChunk({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


async def test_a_refusal_is_text_of_the_answer(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses([delta(refusal="I'd rather not.")])
    assert (await openai_wire.collect_events())[0] == Text("I'd rather not.")


async def test_a_missing_usage_chunk_does_not_delay_the_end(
    openai_wire: ConnectedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.models.providers.openai._USAGE_WAIT_SECONDS", 0.1)
    end = RawChunk({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    openai_wire.server.add_responses([Say("ok"), end, Stall()])
    async with asyncio.timeout(30):
        assert (await openai_wire.collect_events())[-1] == Done(types.FinishReason.STOP, Usage())


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        (Fail(400, code="model_not_found"), ModelNotFoundError),
        (Fail(400, code="content_filter"), ContentBlockedError),
        (Fail(400, code="context_length_exceeded"), ContextLengthError),
        (Fail(429, code="insufficient_quota"), ProviderRateLimitError),
    ],
)
async def test_openais_error_codes_are_recognized(
    openai_wire: ConnectedProvider, fail: Fail, kind: type[ProviderError]
) -> None:
    openai_wire.server.add_responses(fail)
    error = await openai_wire.get_error()
    assert type(error) is kind
    assert isinstance(error, ProviderError)
    assert not error.retryable


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": "rate_limit_exceeded"}, ProviderRateLimitError, True),
        ({"type": "tokens"}, ProviderRateLimitError, True),
        ({"code": 429}, ProviderRateLimitError, True),
        ({"code": "insufficient_quota", "type": "insufficient_quota"}, ProviderRateLimitError, False),
        ({"code": 400}, ProviderRequestError, False),
        ({"code": "context_length_exceeded"}, ContextLengthError, False),
        ({"type": "invalid_request_error"}, ProviderRequestError, False),
        ({"type": "server_error"}, ProviderUnavailableError, True),
        ({"code": 502}, ProviderUnavailableError, True),
        ({}, ProviderUnavailableError, True),
    ],
    ids=str,
)
async def test_an_error_within_a_stream_is_recognized_by_code_or_type(
    openai_wire: ConnectedProvider, error: dict[str, Any], kind: type[ProviderError], retryable: bool
) -> None:
    body = json.dumps({"error": {"message": "scripted failure", **error}})
    openai_wire.server.add_responses([Say("Hel"), Fail(500, body=body)])
    failure = await openai_wire.get_error()
    assert type(failure) is kind
    assert isinstance(failure, ProviderError)
    assert failure.retryable is retryable
    assert "scripted failure" not in str(failure)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
    ],
)
async def test_every_form_of_retry_after_is_read(
    openai_wire: ConnectedProvider, headers: dict[str, str], seconds: float | None
) -> None:
    openai_wire.server.add_responses(Fail(429, headers=headers))
    error = await openai_wire.get_error()
    assert isinstance(error, ProviderRateLimitError)
    assert error.retry_after == seconds


async def test_thoughts_are_not_sent_back(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses("ok")
    await openai_wire.collect_events(
        ModelMessage("user", (Text("a"),)),
        ModelMessage("assistant", (Thought("secret musing"), Text("b"))),
        ModelMessage("assistant", (Thought("only a musing"),)),
        ModelMessage("user", (Text("c"),)),
    )
    assert openai_wire.server.received[0].messages == (("user", "a"), ("assistant", "b"), ("user", "c"))
    assert "musing" not in json.dumps(openai_wire.server.requests[0])


async def test_each_type_of_file_has_its_block(openai_wire: ConnectedProvider) -> None:
    openai_wire.server.add_responses("ok")
    await openai_wire.collect_events(
        ModelMessage(
            "user",
            (
                Text("Look:"),
                Media("image/png", b"png"),
                Media("image/png", uri="https://example.com/cat.png"),
                Media("audio/wav", b"wav"),
                Media("application/pdf", b"pdf"),
                Media("text/csv", b"a,b\n1,2"),
                Media("video/mp4", uri="gs://bucket/film.mp4"),
            ),
        )
    )
    parts = openai_wire.server.requests[0]["messages"][0]["content"]
    assert [part["type"] for part in parts] == [
        "text",
        "image_url",
        "image_url",
        "input_audio",
        "file",
        "text",
        "text",
    ]
    assert parts[1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert parts[4]["file"]["file_data"] == "data:application/pdf;base64,cGRm"
    assert parts[5]["text"] == "a,b\n1,2"
