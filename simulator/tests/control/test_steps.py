"""Scripted responses as JSON."""

import json
import re
from base64 import b64encode
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrig.control.steps import parse_responses
from chatrig.models import CallTool, Fail, Finish, Pause, Say, SendFile, Step, Think

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_responses_are_texts_steps_and_lists_of_steps() -> None:
    responses = [
        "Hello",
        {"type": "Say", "text": "Hi", "pieces": 3, "pace": 1},
        [
            {"type": "Think", "text": "Hm.", "signature": b64encode(b"s").decode()},
            {"type": "CallTool", "name": "add", "arguments": {"a": 1}, "id": None},
            {"type": "Pause", "until": 0.5},
            {"type": "SendFile", "mime_type": "image/png", "data": b64encode(b"png").decode()},
            {"type": "Finish", "reason": "length"},
        ],
        {"type": "Fail", "status": 429, "retry_after": 2, "headers": {"x-limit": "0"}},
    ]
    assert parse_responses(responses) == [
        "Hello",
        Say("Hi", pieces=3, pace=1),
        [
            Think("Hm.", signature=b"s"),
            CallTool("add", {"a": 1}),
            Pause(0.5),
            SendFile("image/png", b"png"),
            Finish("length"),
        ],
        Fail(429, retry_after=2, headers={"x-limit": "0"}),
    ]


@pytest.mark.parametrize(
    ("responses", "error"),
    [
        ("Hello", "the responses must be a list of texts, steps and lists of steps"),
        ([1], "a step must be an object whose 'type' is one of Say, Think, "),
        ([["Hello"]], "a step must be an object whose 'type' is one of Say, Think, "),
        ([{"type": "Sing"}], "a step must be an object whose 'type' is one of Say, Think, "),
        ([{"type": ["Say"]}], "a step must be an object whose 'type' is one of Say, Think, "),
        ([{"type": "Say"}], "Say: the field 'text' is missing"),
        ([{"type": "Say", "text": "", "speed": 2}], "Say: there is no field 'speed'; the fields are text, pieces, "),
        ([{"type": "Say", "text": "", "pieces": 1.5}], "Say: the field 'pieces' must be an integer"),
        ([{"type": "Say", "text": "", "signature": "?"}], "Say: the field 'signature' is not base64"),
        ([{"type": "Pause", "until": "now"}], "Pause: the field 'until' must be a number"),
        ([{"type": "Fail", "status": 200}], "Fail: the field 'status' must be from 400 to 599"),
        (
            [{"type": "Fail", "status": 400, "headers": {"a": 1}}],
            "Fail: the field 'headers' must be an object of texts",
        ),
    ],
)
def test_an_invalid_response_is_refused_with_a_reason(responses: object, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}"):
        parse_responses(responses)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from([step.__name__ for step in get_args(Step)])},
            optional=dict.fromkeys(("text", "name", "until", "status", "data", "mime_type", "url", "pieces"), JSON),
        )
        | JSON,
        max_size=3,
    )
)
def test_any_json_is_parsed_or_refused(responses: list[Any]) -> None:
    with suppress(ValueError):
        assert len(parse_responses(json.loads(json.dumps(responses)))) == len(responses)
