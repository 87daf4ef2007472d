"""Retries of failed model calls, their waits, and retracted text."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest
from google.adk.models import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.errors import (
    ContentBlockedError,
    ModelNotFoundError,
    ProviderAuthError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderStreamError,
    ProviderUnavailableError,
)
from core.models.adapter import ModelAdapter
from core.models.provider import NO_SUPPORTED_FILES, Done, ModelRequest, ProviderEvent, SupportedFiles, Text
from core.models.retries_and_fallbacks import MAX_RETRY_AFTER_SECONDS, RETRY_DELAYS_SECONDS, is_retraction

Script = Sequence[str | Exception | asyncio.Event]
BUSY = ProviderRateLimitError("busy")


class ScriptedCalls:
    """Provider whose streams play one script each: text, waits and errors.

    Attributes:
        started, closed: the number of started and of closed attempts.
        is_waiting: set when an attempt waits for an event of its script.
        has_ended: set at the end of an attempt.
    """

    name = "scripted"

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.started = self.closed = 0
        self.is_waiting, self.has_ended = asyncio.Event(), asyncio.Event()

    def supported_files(self, _model: str) -> SupportedFiles:
        return NO_SUPPORTED_FILES

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        self.started += 1
        try:
            for step in self.scripts.pop(0):
                match step:
                    case Exception():
                        raise step
                    case asyncio.Event():
                        self.is_waiting.set()
                        await step.wait()
                    case _:
                        yield Text(step)
            yield Done()
        finally:
            self.closed += 1
            self.has_ended.set()

    async def aclose(self) -> None:
        return


def stream_responses(calls: ScriptedCalls, delays: tuple[float, ...] = (0, 0)) -> AsyncGenerator[LlmResponse, None]:
    model = ModelAdapter(model="m", provider=calls, retry_delays=delays)
    return model.generate_content_async(LlmRequest(contents=[types.UserContent("Hi")]), stream=True)


async def collect_texts(calls: ScriptedCalls, delays: tuple[float, ...] = (0, 0)) -> list[str | None]:
    """Return the texts of a retried call's partial responses; None is a retraction.

    Args:
        delays: the seconds before each retry.
    """
    async with aclosing(stream_responses(calls, delays)) as responses:
        return [get_text(response) async for response in responses if response.partial]


def get_text(response: LlmResponse) -> str | None:
    assert response.partial
    assert response.content is not None
    return None if is_retraction(response) else "".join(part.text or "" for part in response.content.parts or ())


@pytest.fixture
def sleep_seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace `asyncio.sleep`, and return the list of the seconds of each call."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waits


@pytest.mark.parametrize("error", [BUSY, ProviderUnavailableError("down"), ProviderStreamError("silent")])
async def test_a_retryable_error_is_tried_three_times(error: ProviderError) -> None:
    calls = ScriptedCalls([error], [error], ["Fine."])
    assert await collect_texts(calls) == ["Fine."]
    last = ProviderUnavailableError("still down")
    calls = ScriptedCalls([error], [error], [last], ["never asked for"])
    with pytest.raises(ProviderUnavailableError) as raised:
        await collect_texts(calls)
    assert raised.value is last
    assert (calls.started, calls.closed) == (3, 3)


@pytest.mark.parametrize(
    "error",
    [
        ProviderAuthError("no"),
        ModelNotFoundError("who?"),
        ProviderRequestError("what?"),
        ContentBlockedError("oh"),
        ProviderError("hm"),
        ValueError("not of ours"),
    ],
)
async def test_a_permanent_error_is_raised_at_once(error: Exception) -> None:
    calls = ScriptedCalls(["Hel", error], ["never asked for"])
    with pytest.raises(type(error)) as raised:
        await collect_texts(calls)
    assert raised.value is error
    assert calls.started == 1


async def test_the_waits_grow_and_vary(sleep_seconds: list[float]) -> None:
    for _ in range(20):
        await collect_texts(ScriptedCalls([BUSY], [BUSY], ["Fine."]), RETRY_DELAYS_SECONDS)
    first, second = sleep_seconds[::2], sleep_seconds[1::2]
    assert all(0.25 <= wait <= 0.75 for wait in first)
    assert all(1 <= wait <= 3 for wait in second)
    assert len(set(sleep_seconds)) > 20


@pytest.mark.parametrize("retry_after", [0.0, 7.0, MAX_RETRY_AFTER_SECONDS])
async def test_a_retry_waits_for_retry_after(sleep_seconds: list[float], retry_after: float) -> None:
    await collect_texts(
        ScriptedCalls([ProviderRateLimitError("busy", retry_after=retry_after)], ["Fine."]), RETRY_DELAYS_SECONDS
    )
    [wait] = sleep_seconds
    assert retry_after + 0.25 <= wait <= retry_after + 0.75


async def test_a_long_retry_after_prevents_a_retry(sleep_seconds: list[float]) -> None:
    error = ProviderRateLimitError("busy", retry_after=MAX_RETRY_AFTER_SECONDS + 1)
    with pytest.raises(ProviderRateLimitError):
        await collect_texts(ScriptedCalls([error], ["never asked for"]), RETRY_DELAYS_SECONDS)
    assert sleep_seconds == []


async def test_the_text_of_a_failed_attempt_is_retracted_before_new_text() -> None:
    assert await collect_texts(ScriptedCalls(["Hel", "lo", BUSY], [BUSY], ["Good ", "day"])) == [
        "Hel",
        "lo",
        None,
        "Good ",
        "day",
    ]
    assert await collect_texts(ScriptedCalls(["Hel", BUSY], ["Hell", BUSY], ["Hello"])) == [
        "Hel",
        None,
        "Hell",
        None,
        "Hello",
    ]
    assert await collect_texts(ScriptedCalls([BUSY], ["Hello"])) == ["Hello"]


async def test_each_retry_is_logged_without_the_vendors_words(caplog: pytest.LogCaptureFixture) -> None:
    error = ProviderUnavailableError("openai could not answer (HTTP 500)")
    error.__cause__ = RuntimeError("boom sk-secret")
    with caplog.at_level(logging.WARNING):
        await collect_texts(ScriptedCalls([error], [error], ["Fine."]))
    assert [record.getMessage() for record in caplog.records] == [
        "a model call failed: ProviderUnavailableError: openai could not answer (HTTP 500) (from RuntimeError); "
        f"attempt {number} follows in 0.0 s"
        for number in (2, 3)
    ]
    assert "boom" not in caplog.text


async def test_a_call_cancelled_while_waiting_is_not_retried() -> None:
    calls = ScriptedCalls([BUSY], ["never asked for"])
    task = asyncio.create_task(collect_texts(calls, (60,)))
    async with asyncio.timeout(30):
        await calls.has_ended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert calls.started == 1


async def test_cancelling_an_attempt_ends_it_without_a_retry() -> None:
    calls = ScriptedCalls([BUSY], [asyncio.Event()], ["never asked for"])
    task = asyncio.create_task(collect_texts(calls))
    async with asyncio.timeout(30):
        await calls.is_waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (calls.started, calls.closed) == (2, 2)
