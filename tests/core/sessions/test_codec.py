from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.genai import types
from hypothesis import given

from core.observability.secret_redaction import RunSecrets
from core.sessions import codec as record
from core.sessions.codec import MAX_INLINE_BYTES
from core.sessions.legacy import EventRebuilder
from tests.core.sessions import strategies
from tests.core.sessions.events import call_event, user_event


def load_event(encoded: record.EncodedEvent) -> Event:
    event = record.parse_event(encoded.row["event"], 0)
    assert event is not None
    return record.restore_blobs(event, encoded.blobs)


def rebuild_events(*rows: Any, agent: str = "bot") -> list[Event]:
    rebuilder = EventRebuilder(agent)
    return [rebuilder.rebuild_event(row) for row in rows]


def make_imported_row(role: str, content: str = "", *calls: dict[str, str], author: str = "") -> Any:
    columns = {"role": role, "author": author, "content": content, "tool_calls": list(calls)}
    return SimpleNamespace(**columns, id=7, created_at=1.0, invocation_id="")


@given(strategies.events)
def test_bytes_of_some_size_are_not_in_the_event_itself(event: Event) -> None:
    _, row, blobs = record.encode_event(event)
    assert len(row["event"]) < 20_000
    assert all(len(data) > MAX_INLINE_BYTES or data.startswith(b"parley-blob") for data in blobs.values())


def test_lone_surrogates_are_replaced_and_pairs_become_the_character_that_they_are() -> None:
    event = call_event("c", args={"a": "x\ud800y", "b": "\ud83d\ude00"})
    encoded = record.encode_event(event)
    stored = encoded.event
    assert load_event(encoded) == stored
    assert stored.get_function_calls()[0].args == {"a": "x\ufffdy", "b": "😀"}
    assert stored.id == event.id
    assert record.encode_event(user_event("a\udfffb")).row["content"] == "a\ufffdb"


def test_a_call_keeps_its_id_and_one_without_gets_one() -> None:
    assert record.to_row(call_event("adk-uuid-123", name="exec", args={"cmd": "ls"}))["tool_calls"] == [
        {"id": "adk-uuid-123", "name": "exec", "input": '{"cmd": "ls"}'}
    ]
    calls = record.to_row(call_event(None, None, "call_t_2", None))["tool_calls"]
    assert calls[0]["id"] == "call_t"
    assert len({call["id"] for call in calls}) == 4


def test_thoughts_are_not_in_the_content() -> None:
    parts = [types.Part(text="hm", thought=True), types.Part(text="yes")]
    assert record.to_row(Event(author="bot", content=types.Content(role="model", parts=parts)))["content"] == "yes"


def test_a_state_only_event_differs_from_one_with_content() -> None:
    delta = {"a": 1}
    assert record.is_state_only(Event(author="bot", actions=EventActions(state_delta=delta)))
    assert record.is_state_only(Event(author="bot", long_running_tool_ids=set(), partial=False))
    compaction = EventCompaction(start_timestamp=1, end_timestamp=2, compacted_content=types.Content())
    for actions in (
        EventActions(state_delta=delta, agent_state={"step": 1}),
        EventActions(state_delta=delta, end_of_agent=True),
        EventActions(compaction=compaction),
    ):
        assert not record.is_state_only(Event(author="bot", actions=actions))
    assert not record.is_state_only(Event(author="bot", error_code="X"))
    assert not record.is_state_only(user_event("hi"))


@pytest.mark.parametrize("role", ["model", "assistant", "tool", "function", "something", ""])
def test_rows_of_other_roles_belong_to_the_root_agent(role: str) -> None:
    assert rebuild_events(make_imported_row(role, "x"), agent="bot")[0].author == "bot"
    assert rebuild_events(make_imported_row(role, "x"), agent="")[0].author == "lango_agent"
    assert rebuild_events(make_imported_row(role, "x", author="model"))[0].author == "bot"


def test_an_older_answer_belongs_to_the_preceding_calls_by_its_position() -> None:
    calls = [{"id": f"call_{name}", "name": name, "input": "{}"} for name in ("exec", "read")]
    events = rebuild_events(
        make_imported_row("assistant", "", *calls),
        make_imported_row("tool", '{"result":"file.txt"}'),
        make_imported_row("tool", "plain"),
    )
    assert [answer for event in events for answer in event.get_function_responses()] == [
        types.FunctionResponse(id="call_exec", name="exec", response={"result": "file.txt"}),
        types.FunctionResponse(id="call_read", name="read", response={"output": "plain"}),
    ]


def test_the_cost_of_an_image_does_not_depend_on_its_bytes() -> None:
    def cost(size: int) -> int:
        part = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x" * size))
        return record.measure_event(Event(author="user", content=types.Content(parts=[part])))[1]

    assert cost(10) == cost(1_000_000) > 500


SECRET = "hunter2-zq"


@given(strategies.events)
def test_masks_keep_ids_names_and_files_and_the_event_comes_back_equal(event: Event) -> None:
    row = {**record.encode_event(event).row, "tokens": 7}
    secrets = RunSecrets()
    assert record.mask_row(row, secrets) == row
    texts = [part.text for part in (event.content and event.content.parts) or () if part.text]
    secrets.add(texts)
    masked = record.mask_row(row, secrets)
    if masked["unmasked"] is not None:
        assert masked["unmasked"]["event"] == row["event"]
    assert {name: masked[name] for name in ("role", "event_id", "long_running_calls", "tokens")} == {
        name: row[name] for name in ("role", "event_id", "long_running_calls", "tokens")
    }
    before, after = record.parse_event(row["event"], 0), record.parse_event(masked["event"], 0)
    assert before is not None
    assert after is not None
    for name in ("get_function_calls", "get_function_responses"):
        found = [[(item.id, item.name) for item in getattr(of, name)()] for of in (before, after)]
        assert found[0] == found[1]
    assert record.list_blob_digests(before) == record.list_blob_digests(after)


def test_each_part_of_an_event_that_has_a_secret_is_masked() -> None:
    confirmed = {"id": "c1", "name": "pay", "args": {"pin": 7}}
    response = {"result": {"pin": 7}, "text": f"of {SECRET}"}
    parts = [
        types.Part(text=f"it is {SECRET}"),
        types.Part(text=f"I know {SECRET}", thought=True, thought_signature=b"signed"),
        types.Part(text="I think", thought=True, thought_signature=b"signed"),
        types.Part(function_call=types.FunctionCall(id="c1", name="pay", args={"pin": 7}), thought_signature=b"signed"),
        types.Part(
            function_call=types.FunctionCall(id="c2", name="ask", args={"originalFunctionCall": confirmed}),
            thought_signature=b'parley:openai:[{"reasoning_content": "' + SECRET.encode() + b'"}, {}]',
        ),
        types.Part(function_response=types.FunctionResponse(id="c3", name="pay", response=response)),
        types.Part(executable_code=types.ExecutableCode(code=f"use({SECRET!r})", language=types.Language.PYTHON)),
        types.Part(code_execution_result=types.CodeExecutionResult(output=SECRET, outcome=types.Outcome.OUTCOME_OK)),
    ]
    summary = EventCompaction(
        start_timestamp=1.0, end_timestamp=2.0, compacted_content=types.ModelContent(f"They gave {SECRET}.")
    )
    actions = EventActions(state_delta={"key": SECRET}, agent_state={"key": [SECRET]}, compaction=summary)
    event = Event(author="bot", content=types.Content(role="model", parts=parts), actions=actions)
    event.output = {"key": SECRET, "of": f"{SECRET}!"}
    secrets = RunSecrets()
    secrets.add(SECRET)
    secrets.paths = {"c1": {("pin",)}, "c3": {("result", "pin")}}
    masked = record.mask_event(event, secrets)
    assert SECRET not in masked.model_dump_json()
    assert '"pin":7' not in masked.model_dump_json()
    kept = (masked.content and masked.content.parts) or []
    assert [part.thought_signature for part in kept[1:5]] == [None, b"signed", b"signed", None]
    assert SECRET in event.model_dump_json()
