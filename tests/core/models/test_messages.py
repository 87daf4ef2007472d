"""Conversion of any ADK history into a valid model request."""

import json
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from core.models.messages import INTERRUPTED_RESULT, clean_json, clean_text, convert_messages
from core.models.provider import Media, ModelMessage, Text, Thought, ToolCall, ToolResult


def call(name: str, id_: str | None = None, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id_, name=name, args=args))


def response(name: str, id_: str | None = None, **result: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=id_, name=name, response=result))


def user(*parts: types.Part | str) -> types.Content:
    return types.UserContent(list(parts))


def model(*parts: types.Part | str) -> types.Content:
    return types.ModelContent(list(parts))


def function(*parts: types.Part) -> types.Content:
    return types.Content(role="function", parts=list(parts))


def ids(messages: list[ModelMessage]) -> list[list[str]]:
    return [
        [part.id for part in message.parts if isinstance(part, ToolCall | ToolResult)]
        for message in messages
        if message.role == "tool" or message.tool_calls
    ]


def test_each_content_keeps_its_role() -> None:
    contents = [user("Hi"), model("Hello", call("t", "a")), function(response("t", "a", r=1)), model("ok")]
    assert convert_messages(contents) == [
        ModelMessage("user", (Text("Hi"),)),
        ModelMessage("assistant", (Text("Hello"), ToolCall("a", "t", {}))),
        ModelMessage("tool", (ToolResult("a", "t", {"r": 1}),)),
        ModelMessage("assistant", (Text("ok"),)),
    ]


@pytest.mark.parametrize("role", ["user", "function", "tool"])
def test_a_response_is_a_tool_message_whatever_its_role(role: str) -> None:
    answer = types.Content(role=role, parts=[response("t", "a")])
    assert [message.role for message in convert_messages([user("Hi"), model(call("t", "a")), answer])] == [
        "user",
        "assistant",
        "tool",
    ]


@pytest.mark.parametrize(
    "instruction",
    [
        types.Content(parts=[types.Part(text="One."), types.Part(text="Two.")]),
        [types.Part(text="One."), "Two."],
        ["One.", "Two."],
    ],
)
def test_the_parts_of_the_system_instruction_are_joined_by_newlines(instruction: Any) -> None:
    assert convert_messages([], instruction) == [ModelMessage("system", (Text("One.\nTwo."),))]


def test_ids_have_the_characters_and_the_length_that_every_vendor_takes() -> None:
    unsafe = ["a.b", "a:b", "a_b", "x" * 70, "x" * 70, "fine-1"]
    messages = convert_messages([model(*(call("t", id_) for id_ in unsafe)), user(response("t", "a:b"))])
    assert ids(messages)[0] == ["a_b", "a_b_2", "a_b_3", "x" * 40, "x" * 34 + "_2", "fine-1"]
    assert ids(messages)[1] == ids(messages)[0]


def test_calls_without_ids_are_paired_in_order() -> None:
    messages = convert_messages(
        [
            model(call("t"), call("t"), call("u")),
            function(response("t", n=1), response("u", n=3), response("t", n=2)),
        ]
    )
    assert ids(messages) == [["call_t", "call_t_2", "call_u"]] * 2
    assert [part.result for part in messages[1].parts if isinstance(part, ToolResult)] == [
        {"n": 1},
        {"n": 2},
        {"n": 3},
    ]


def test_a_response_may_have_the_generated_id_of_its_call() -> None:
    contents = [model(call("t"), call("t")), function(response("t", "call_t_2", n=2), response("t", n=1))]
    assert [part.result for part in convert_messages(contents)[1].parts if isinstance(part, ToolResult)] == [
        {"n": 1},
        {"n": 2},
    ]


def test_a_call_without_a_response_gets_an_interrupted_result() -> None:
    contents = [user("Hi"), model(call("t", "a"), call("t", "b")), function(response("t", "b")), user("so?")]
    assert convert_messages(contents)[2:] == [
        ModelMessage("tool", (ToolResult("a", "t", INTERRUPTED_RESULT), ToolResult("b", "t", {}))),
        ModelMessage("user", (Text("so?"),)),
    ]


def test_a_later_call_does_not_get_the_response_of_an_interrupted_one() -> None:
    contents = [model(call("t")), user("again"), model(call("t")), function(response("t", n=2))]
    results = [part for message in convert_messages(contents) for part in message.parts]
    assert [part.result for part in results if isinstance(part, ToolResult)] == [INTERRUPTED_RESULT, {"n": 2}]


def test_a_late_response_follows_its_call() -> None:
    contents = [model(call("t", "a")), user("Are you there?"), function(response("t", "a", r=1))]
    assert [message.role for message in convert_messages(contents)] == ["assistant", "tool", "user"]


def test_the_result_of_a_long_running_tool_replaces_its_first_one() -> None:
    contents = [model(call("t", "a")), function(response("t", "a", r="wait")), user(response("t", "a", r="ok"))]
    assert convert_messages(contents)[1] == ModelMessage("tool", (ToolResult("a", "t", {"r": "ok"}),))


def test_parts_keep_their_order_and_their_signatures() -> None:
    signed = call("t", "a")
    signed.thought_signature = b"call"
    contents = [
        model(
            types.Part(text="Hm.", thought=True, thought_signature=b"thought"),
            types.Part(text="One"),
            signed,
            types.Part(text="two"),
            types.Part(thought_signature=b"alone"),
        )
    ]
    assert convert_messages(contents)[0].parts == (
        Thought("Hm.", b"thought"),
        Text("One"),
        ToolCall("a", "t", {}, b"call"),
        Text("two"),
        Text("", b"alone"),
    )


def test_files_are_converted_by_bytes_or_by_address() -> None:
    contents = [
        user(
            "Look",
            types.Part.from_bytes(data=b"png", mime_type="image/png"),
            types.Part.from_uri(file_uri="gs://a/b.pdf", mime_type="application/pdf"),
        )
    ]
    assert convert_messages(contents)[0].parts == (
        Text("Look"),
        Media("image/png", data=b"png"),
        Media("application/pdf", uri="gs://a/b.pdf"),
    )


def test_files_of_a_tool_result_are_converted() -> None:
    tool_result = response("t", "a")
    assert tool_result.function_response is not None
    blob = types.FunctionResponseBlob(mime_type="image/png", data=b"png")
    tool_result.function_response.parts = [types.FunctionResponsePart(inline_data=blob)]
    result = convert_messages([model(call("t", "a")), function(tool_result)])[1].parts[0]
    assert isinstance(result, ToolResult)
    assert result.media == (Media("image/png", data=b"png"),)


def test_empty_parts_and_contents_are_dropped() -> None:
    contents = [user(""), types.Content(role="model"), model(types.Part()), user("Hi")]
    assert convert_messages(contents) == [ModelMessage("user", (Text("Hi"),))]


def test_values_that_json_lacks_are_converted() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    plain = clean_json({"when": moment, "nan": float("nan"), "raw": b"\xff", "who": {1: {"x"}}})
    assert plain["when"] == "2026-01-02T00:00:00Z"
    assert plain["nan"] is None
    assert plain["who"] == {"1": ["x"]}
    json.dumps(plain, allow_nan=False)


any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_clean_text_is_idempotent_unicode_without_nuls(text: str) -> None:
    clean = clean_text(text)
    assert "\0" not in clean
    assert clean.encode().decode() == clean
    assert clean_text(clean) == clean


@given(st.text())
def test_valid_text_does_not_change(text: str) -> None:
    assert clean_text(text) == text.replace("\0", "\N{REPLACEMENT CHARACTER}")


some_ids = st.sampled_from([None, "", "a", "call_t", "call_t_2"])
some_parts = st.one_of(
    st.builds(lambda text: types.Part(text=text), any_text),
    st.builds(call, st.sampled_from("tu"), some_ids, x=any_text),
    st.builds(response, st.sampled_from("tu"), some_ids, y=any_text),
)
some_contents = st.builds(
    lambda role, parts: types.Content(role=role, parts=parts),
    st.sampled_from(["user", "model", "function", None]),
    st.lists(some_parts, max_size=4),
)


@given(st.lists(some_contents, max_size=8))
def test_every_call_has_one_result_and_every_result_a_call(contents: list[types.Content]) -> None:
    messages = convert_messages(contents)
    seen: set[str] = set()
    for message, after in zip_longest(messages, messages[1:]):
        assert message.parts
        called = [call.id for call in message.tool_calls]
        if called:
            assert message.role == "assistant"
            assert after is not None
            assert [part.id for part in after.parts if isinstance(part, ToolResult)] == called
            assert not seen & set(called)
            seen.update(called)
        if message.role == "tool":
            assert all(isinstance(part, ToolResult) and part.id in seen for part in message.parts)
        message.text.encode()
    total = sum(bool(part.function_call) for content in contents for part in content.parts or [])
    assert len(seen) == total
