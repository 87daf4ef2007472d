"""Mapping of ADK's events to stream events, and the reply's text."""

import pytest
from google.adk.events.event import Event
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from core.agents.event_mapper import EventMapper, find_open_calls
from core.agents.events import StreamEvent
from core.errors import ContentBlockedError
from core.models.adapter import NO_CONTENT_ERROR_CODE
from core.models.finish_reasons import CUT_OFF_NOTE
from tests.fixtures.conversation import apply_text_events, list_types


def part(text: str, *, author: str = "teller", branch: str | None = None) -> Event:
    return Event(author=author, branch=branch, partial=True, content=types.ModelContent(text))


def final(text: str, *, author: str = "teller", branch: str | None = None) -> Event:
    return Event(author=author, branch=branch, partial=False, content=types.ModelContent(text))


def map_events(*events: Event) -> list[StreamEvent]:
    """Return the stream events of a run that yields these ADK events."""
    steps = EventMapper()
    return [*(event for line in events for event in steps.map_event(line)), steps.create_last_event()]


def test_a_final_event_that_repeats_its_partials_adds_no_text() -> None:
    events = map_events(part("Hel"), part("lo"), final("Hello"))
    assert list_types(events) == ["text_delta", "text_delta", "done"]
    assert apply_text_events(events) == events[-1].text == "Hello"


def test_a_final_event_that_redacts_its_partials_wins() -> None:
    events = map_events(part("The code "), part("is 1234."), final("The code is [redacted]."))
    assert list_types(events) == ["text_delta", "text_delta", "step_reset", "done"]
    assert apply_text_events(events) == events[-1].text == "The code is [redacted]."


@pytest.mark.parametrize("branch", [None, "left"])
def test_an_empty_final_event_retracts_its_partials(branch: str | None) -> None:
    events = map_events(part("The code is 1234.", branch=branch), final("", branch=branch))
    assert list_types(events) == ["text_delta", "step_reset", "done"]
    assert apply_text_events(events) == events[-1].text == ""


def test_a_final_event_that_says_more_than_its_partials_adds_the_rest() -> None:
    assert [event.text for event in map_events(part("Hello"), final("Hello you"))] == ["Hello", " you", "Hello you"]


def test_the_texts_of_steps_are_joined_by_a_blank_line() -> None:
    events = map_events(part("One."), final("One."), final("   "), part("Two."), final("Two."))
    assert [event.text for event in events] == ["One.", "\n\nTwo.", "One.\n\nTwo."]


@pytest.mark.parametrize("key", ["author", "branch"])
def test_a_final_event_replaces_the_partials_of_its_own_author_and_branch(key: str) -> None:
    x, y = {key: "x"}, {key: "y"}
    events = map_events(part("a", **x), part("b", **y), part("A", **x), final("b", **y), final("aA", **x))
    assert apply_text_events(events) == events[-1].text == "aA\n\nb"


lines_of_talk = st.lists(
    st.builds(
        lambda text, author, branch, is_final: (final if is_final else part)(text, author=author, branch=branch),
        st.sampled_from(["", " ", "\n\n", "a", "b ", "long word", "é"]),
        st.sampled_from(["ada", "bob"]),
        st.sampled_from([None, "left", "right"]),
        st.booleans(),
    ),
    max_size=20,
)


@given(lines_of_talk)
def test_applying_all_events_yields_the_reply(lines: list[Event]) -> None:
    events = map_events(*lines)
    assert events[-1].type == "done"
    assert apply_text_events(events) == events[-1].text


def test_a_truncated_answer_with_an_error_code_gets_a_note() -> None:
    cut = {"error_code": "MAX_TOKENS", "finish_reason": types.FinishReason.MAX_TOKENS}
    assert map_events(final("Once upon").model_copy(update=cut))[-1].text == f"Once upon\n\n{CUT_OFF_NOTE}"


def test_a_stored_call_that_waits_is_replayed_also_without_its_start() -> None:
    call = types.Part(function_call=types.FunctionCall(id="c1", name="pay", args={}))
    response = types.FunctionResponse(id="c1", name="pay", response={"error": "it needs a confirmation"})
    waits = Event(author="bot", content=types.Content(role="user", parts=[types.Part(function_response=response)]))
    waits.actions.requested_tool_confirmations["c1"] = ToolConfirmation()
    start = Event(author="bot", content=types.Content(role="model", parts=[call]))
    assert list_types(list(EventMapper().replay_events([start, waits]))) == ["tool_start", "tool_wait"]
    assert list_types(list(EventMapper().replay_events([waits]))) == ["tool_wait"]


def test_an_error_of_an_mcp_server_is_an_error_of_the_call() -> None:
    result = {"content": [{"type": "text", "text": "no such page"}], "isError": True}
    answer = types.Part(function_response=types.FunctionResponse(id="c1", name="look", response=result))
    error, end, _ = map_events(Event(author="bot", content=types.Content(role="user", parts=[answer])))
    assert (error.type, error.call_id, end.type) == ("error", "c1", "tool_end")
    assert "no such page" in str(error.error)


def test_a_blocked_answer_is_an_error_of_its_own_kind() -> None:
    [event] = map_events(Event(author="teller", error_code="SAFETY"))
    assert isinstance(event.error, ContentBlockedError)


def test_an_empty_last_answer_keeps_the_earlier_text() -> None:
    assert map_events(final("Done."), Event(author="teller", error_code=NO_CONTENT_ERROR_CODE))[-1].text == "Done."


def call_event(*ids: str, waits: bool = False) -> Event:
    parts = [types.Part(function_call=types.FunctionCall(id=id_, name="look", args={})) for id_ in ids]
    waiting = set(ids) if waits else None
    return Event(author="teller", content=types.ModelContent(parts), long_running_tool_ids=waiting)


def response_event(id_: str) -> Event:
    answer = types.FunctionResponse(id=id_, name="look", response={"result": "sky"})
    return Event(author="teller", content=types.Content(role="user", parts=[types.Part(function_response=answer)]))


def test_calls_of_an_earlier_attempt_are_mapped_as_past() -> None:
    stored = [final("First."), call_event("c1"), response_event("c1"), call_event("c2", "c3")]
    events = list(EventMapper().replay_events(stored))
    assert [(event.type, event.call_id) for event in events] == [
        ("text_delta", ""),
        ("tool_past", "c1"),
        ("tool_start", "c2"),
        ("tool_start", "c3"),
    ]


def test_a_call_that_is_answered_or_may_wait_is_not_open() -> None:
    assert find_open_calls(
        [call_event("c1"), response_event("c1"), call_event("c2", waits=True), call_event("c3")]
    ) == {"c3"}


def code(text: str) -> types.Part:
    return types.Part.from_executable_code(code=text, language=types.Language.PYTHON)


def output(text: str) -> types.Part:
    return types.Part.from_code_execution_result(outcome=types.Outcome.OUTCOME_OK, output=text)


def test_executed_code_and_its_output_are_text() -> None:
    ran = types.Content(role="model", parts=[types.Part(text="Let me see."), code("print('```')")])
    gave = types.Content(role="model", parts=[output("```\n")])
    finals = [Event(author="teller", content=content) for content in (ran, gave)]
    events = map_events(part("Let me see.\n```tool_code\nprint"), *finals)
    assert events[-1].text == "Let me see.\n````python\nprint('```')\n````\n\n````\n```\n````"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"result": "It rains."}, "It rains."),
        ({"sky": "grey"}, '```json\n{\n  "sky": "grey"\n}\n```'),
        ({"result": ["a"]}, '```json\n[\n  "a"\n]\n```'),
        ({"error": "look failed: KeyError: 'secret'"}, ""),
        ({"result": 0}, "```json\n0\n```"),
        ({"result": False}, "```json\nfalse\n```"),
        ({"result": None}, ""),
        ({"result": []}, ""),
        ({"result": {}}, ""),
        ({}, ""),
    ],
)
def test_the_result_of_a_tool_that_skips_summarization_is_the_answer(result: dict[str, str], text: str) -> None:
    answer = types.Part.from_function_response(name="look", response=result)
    event = Event(author="teller", content=types.Content(role="user", parts=[answer]))
    assert map_events(event)[-1].text == ""
    event.actions.skip_summarization = True
    assert map_events(event)[-1].text == text
    event.actions.requested_tool_confirmations = {"c": ToolConfirmation()}
    assert map_events(event)[-1].text == ""


def test_a_question_is_no_text_and_no_tool() -> None:
    call = types.FunctionCall(id="c1", name="adk_request_input", args={"message": "What is your name?"})
    asks = types.Part(function_call=call)
    (done,) = map_events(Event(author="teller", content=types.Content(role="model", parts=[asks])))
    assert (done.type, done.text) == ("done", "")
    assert [question.arguments for question in done.questions] == [{"message": "What is your name?"}]


def test_a_choice_of_a_person_has_no_status_line() -> None:
    call = types.Part(function_call=types.FunctionCall(id="c1", name="get_user_choice", args={"options": ["S", "M"]}))
    event = Event(author="asker", content=types.Content(role="model", parts=[call]))
    assert list_types(map_events(event)) == ["done"]


def test_the_address_of_a_file_is_shown_in_its_place_and_links_only_to_the_web() -> None:
    parts = [
        types.Part(text="Here:"),
        types.Part.from_uri(file_uri="https://files.example/a.png", mime_type="image/png"),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/`b`", display_name="[b](c)", mime_type="image/png")),
    ]
    mapper = EventMapper()
    list(mapper.map_event(Event(author="parley", content=types.Content(role="model", parts=parts))))
    text = "Here:\n\n📎 file: <https://files.example/a.png>\n\n\n\n📎 bc: `gs://bucket/b`"
    done = mapper.create_last_event()
    assert done.text.strip() == text
