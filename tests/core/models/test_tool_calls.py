import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from google.adk.events.event import Event
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from core.models.provider import Media, ModelMessage, Part, Text, Thought, ToolCall, ToolResult
from core.models.tool_calls import (
    MALFORMED_CALL_PREFIX,
    MAX_JSON_CHARACTERS,
    MAX_JSON_LEVELS,
    MAX_JSON_VALUES,
    JsonLimitError,
    check_json,
    keep_own_signatures,
    mark_signature,
    parse_call,
    parse_json,
    refuse_malformed_arguments,
)
from core.sessions.codec import encode_event, parse_event, to_json_value
from core.tools.call_log import hash_arguments

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


def nest(levels: int, leaf: str = "1") -> str:
    return "[" * levels + leaf + "]" * levels


#: JSON texts over a limit, and the limit.
OVER_LIMITS = {
    nest(MAX_JSON_LEVELS + 1): "depth",
    nest(MAX_JSON_LEVELS + 1, leaf=""): "depth",
    nest(990): "depth",
    nest(100_000): "depth",
    "[" * 100_000: "depth",
    '{"a":' * 100_000: "depth",
    f"[{'0,' * MAX_JSON_VALUES}0]": "values",
    "[" + "[]," * MAX_JSON_VALUES + "[]]": "values",
    json.dumps("x" * MAX_JSON_CHARACTERS): "characters",
    "NaN": "number",
    '{"a": [-Infinity]}': "number",
    "[1e999]": "number",
}


@pytest.mark.parametrize("text", OVER_LIMITS, ids=lambda text: text[:12])
def test_json_over_a_limit_is_an_error_with_the_limit(text: str) -> None:
    with pytest.raises(JsonLimitError) as raised:
        parse_json(text)
    assert raised.value.limit == OVER_LIMITS[text]
    assert parse_call("c", "f", f'{{"a": {text}}}', is_truncated=True) is None
    call = parse_call("c", "f", f'{{"a": {text}}}', is_truncated=False)
    assert call is not None
    assert call.name == f"{MALFORMED_CALL_PREFIX}f"
    assert len(call.arguments["arguments"]) <= 10_000


@pytest.mark.parametrize("text", [nest(MAX_JSON_LEVELS), str(10**4299), f"[{'0,' * (MAX_JSON_VALUES - 2)}0]", '"a\nb"'])
def test_json_at_its_limits_is_read_and_hashed(text: str) -> None:
    value = parse_json(text)
    assert to_json_value(value) == value
    assert hash_arguments(value)


@given(st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_call_within_the_limits_survives_storage(value: Any) -> None:
    deepest: Any = value
    for _ in range(MAX_JSON_LEVELS - 10):
        deepest = [deepest]
    call = types.FunctionCall(id="c", name="f", args={"a": deepest})
    try:
        check_json(call.args)
    except JsonLimitError:
        return
    event = Event(author="bot", content=types.Content(role="model", parts=[types.Part(function_call=call)]))
    stored = parse_event(encode_event(event).row["event"], 1)
    assert stored is not None
    assert [found.args for found in stored.get_function_calls()] == [call.args]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), 10**4300, parse_json(nest(MAX_JSON_LEVELS))],
    ids=["NaN", "infinity", "digits", "depth"],
)
def test_arguments_over_a_limit_become_a_call_of_no_tool(value: Any) -> None:
    call = types.FunctionCall(id="c", name="f", args={"a": value})
    refuse_malformed_arguments(call)
    assert call.name == f"{MALFORMED_CALL_PREFIX}f"
    assert "refused" in str(call.args)
