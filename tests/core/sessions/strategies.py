"""Hypothesis strategies for ADK events."""

from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from hypothesis import strategies as st

text = st.text(max_size=40)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(text, json_values, max_size=3)
signatures = st.none() | st.binary(min_size=1, max_size=60)
identifiers = st.none() | st.text("abc123-", min_size=1, max_size=8)
names = st.sampled_from(["t", "search", "exec"])
media = st.builds(
    types.Blob,
    mime_type=st.sampled_from(["image/png", "text/plain", "audio/mpeg"]),
    data=st.binary(max_size=20) | st.binary(min_size=1020, max_size=3000) | st.just(b"parley-blob:sha256:beef"),
)
parts = st.one_of(
    st.builds(types.Part, text=text, thought_signature=signatures, thought=st.sampled_from([None, True])),
    st.builds(
        types.Part,
        function_call=st.builds(types.FunctionCall, id=identifiers, name=names, args=arguments),
        thought_signature=signatures,
    ),
    st.builds(
        types.Part,
        function_response=st.builds(
            types.FunctionResponse,
            id=identifiers,
            name=names,
            response=arguments,
            parts=st.none()
            | st.lists(
                st.builds(
                    types.FunctionResponsePart,
                    inline_data=st.builds(
                        types.FunctionResponseBlob,
                        mime_type=st.just("image/png"),
                        data=st.binary(min_size=1, max_size=2000),
                    ),
                ),
                min_size=1,
                max_size=2,
            ),
        ),
    ),
    st.builds(types.Part, inline_data=media),
)
contents = st.builds(types.Content, role=st.sampled_from(["user", "model"]), parts=st.lists(parts, max_size=4))
actions = st.builds(
    EventActions,
    state_delta=st.dictionaries(st.sampled_from(["a", "b", "user:c", "app:d"]), json_values, max_size=3),
    end_of_agent=st.sampled_from([None, True]),
    agent_state=st.none() | st.dictionaries(text, json_values, min_size=1, max_size=2),
)
events = st.builds(
    Event,
    author=st.sampled_from(["user", "bot", "helper"]),
    invocation_id=st.text("ie-12", max_size=6),
    content=st.none() | contents,
    actions=actions,
    error_code=st.none() | st.just("MAX_TOKENS"),
    branch=st.none() | st.just("bot.helper"),
    long_running_tool_ids=st.none() | st.sets(st.text("abc123-", min_size=1, max_size=8), max_size=2),
    timestamp=st.floats(1, 2e9),
)
