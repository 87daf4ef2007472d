"""Conversion of users' messages that answer questions to ADK's responses.

Such a message is stored as a run of its own, so that edits, deletions and exports work; only the row of the question in
`human_requests` refers to the message. ADK gets the events of both runs as one run, and the message as the function
response of the call that asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.events.event import Event
from google.genai import types

from core.sessions.history import is_user_message
from core.sessions.resume import INPUT_CALL
from core.tools.adk_requests import Answer, MessageAnswer, to_response_part
from core.tools.question_form import EntryError, create_form, parse_answer
from core.tools.secret_answers import list_message_secrets


def filter_answer_events(events: Sequence[Event], run: str, answers: Sequence[MessageAnswer]) -> list[Event]:
    """Return the events of which `merge_runs` needs the stored form: calls and user messages of the merged runs."""
    runs = {run, *(answer.asking_run for answer in answers)}
    return [event for event in events if event.invocation_id in runs and (_has_calls(event) or is_user_message(event))]


def merge_runs(
    events: Sequence[Event], run: str, answers: Sequence[MessageAnswer], stored: Mapping[str, tuple[Event, str]]
) -> list[Event]:
    """Return the session's events, with a run and those it continues as one run.

    A run continues an earlier one if its message answers a question of the earlier one. Such a message becomes the
    function response of the call with the question. The events of these runs are copied; the given events stay as they
    are.

    Args:
        answers: the user messages by which this run continues earlier runs, oldest first.
        stored: the events of `filter_answer_events` as they are stored, and their texts, by event id. They have the
            call ids that a workflow knows; a loaded history may have replaced these ids.
    """
    runs = {run, *(answer.asking_run for answer in answers)}
    call_ids = {answer.run: answer.call_id for answer in answers}
    calls = dict[str, tuple[Event, types.FunctionCall]]()
    merged = list[Event]()
    for event in events:
        if event.invocation_id not in runs:
            merged.append(event)
            continue
        original = stored[event.id][0] if event.id in stored and _requests_input(event) else event
        calls |= {call.id: (original, call) for call in original.get_function_calls() if call.id}
        update: dict[str, object] = {"invocation_id": run}
        call_id = call_ids.get(event.invocation_id)
        if call_id in calls and is_user_message(event):
            asking_event, call = calls[call_id]
            text = stored[event.id][1] if event.id in stored else ""
            update |= {
                "content": types.Content(role="user", parts=[_to_response(call, call_id, text)]),
                "branch": asking_event.branch,
                "isolation_scope": asking_event.isolation_scope,
            }
        merged.append(original.model_copy(update=update))
    return merged


def list_secrets(answer: MessageAnswer, text: str, stored: Mapping[str, tuple[Event, str]]) -> list[Any]:
    """Return the secrets in a message that answers a question; its `text` is without author names and quotes."""
    calls = [call for event, _ in stored.values() for call in event.get_function_calls() if call.id == answer.call_id]
    if not calls:
        return []
    tool = calls[-1].name or ""
    arguments = calls[-1].args or {}
    return list_message_secrets(tool, arguments, text, _parse_answer(tool, arguments, text))


def remove_response_schemas(event: Event) -> Event:
    """Return an event without the `response_schema` of its `adk_request_input` calls, as a copy if it has such calls.

    The answers were checked against their schemas already. ADK 2.13 would check them again, and fails at schemas that
    it cannot read, such as those with a list of types.
    """
    if event.content is None or not _requests_input(event):
        return event
    parts = [_remove_response_schema(part) for part in event.content.parts or ()]
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})


def _remove_response_schema(part: types.Part) -> types.Part:
    call = part.function_call
    if call is None or call.name != INPUT_CALL:
        return part
    arguments = {name: value for name, value in (call.args or {}).items() if name != "response_schema"}
    return part.model_copy(update={"function_call": call.model_copy(update={"args": arguments})})


def _has_calls(event: Event) -> bool:
    return bool(event.get_function_calls())


def _requests_input(event: Event) -> bool:
    return any(call.name == INPUT_CALL for call in event.get_function_calls())


def _to_response(call: types.FunctionCall, call_id: str, text: str) -> types.Part:
    tool = call.name or ""
    return to_response_part(Answer(call_id, tool, _parse_answer(tool, call.args or {}, text)), call)


def _parse_answer(tool: str, arguments: Mapping[str, Any], text: str) -> Any:
    try:
        return parse_answer(create_form(tool, arguments), text)
    except EntryError:  # the text was checked when the message was accepted, and ADK checks it too
        return text
