from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models.provider import Media, ModelMessage, Part, Text, Thought, ToolCall, ToolResult
from core.models.tool_calls import keep_own_signatures, mark_signature

PROVIDERS = ["gemini", "openai", "anthropic", "local"]

providers = st.sampled_from(PROVIDERS)
signatures = st.binary().filter(lambda signature: not signature.startswith(b"parley:"))


def assistant(*parts: Part) -> list[ModelMessage]:
    return [ModelMessage("assistant", parts)]


@given(providers, signatures)
def test_a_signature_is_sent_back_to_its_provider_unchanged(provider: str, signature: bytes) -> None:
    parts: list[Text | Thought | ToolCall] = [
        Text("a", signature),
        Thought("", signature),
        ToolCall("c", "f", {}, signature),
    ]
    message = assistant(*(replace(part, signature=mark_signature(signature, provider)) for part in parts))
    assert keep_own_signatures(message, provider) == assistant(*parts)


@pytest.mark.parametrize(("writer", "reader"), list(permutations(PROVIDERS, 2)))
def test_a_signature_is_not_sent_to_another_provider(writer: str, reader: str) -> None:
    signature = mark_signature(b"secret", writer)
    history = assistant(
        Thought("Hm.", signature), Text("a", signature), Text("", signature), ToolCall("c", "f", {}, signature)
    )
    assert keep_own_signatures(history, reader) == assistant(Text("a"), ToolCall("c", "f", {}))


def test_geminis_signatures_have_no_mark() -> None:
    assert mark_signature(b"1", "gemini") == b"1"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_thought_without_a_signature_is_dropped(provider: str) -> None:
    history = [ModelMessage("user", (Text("a"),)), *assistant(Thought("Hm.")), *assistant(Thought("Hm."), Text("b"))]
    assert keep_own_signatures(history, provider) == [ModelMessage("user", (Text("a"),)), *assistant(Text("b"))]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_parts_without_a_signature_do_not_change(provider: str) -> None:
    history = [
        ModelMessage("user", (Text("a"), Media("image/png", b"png"))),
        *assistant(Text("b"), ToolCall("c", "f", {})),
        ModelMessage("tool", (ToolResult("c", "f", {}),)),
    ]
    assert keep_own_signatures(history, provider) == history
