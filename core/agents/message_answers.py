"""Messages that answer an agent's question, as ADK's response to its call.

Such a message is stored as a run of its own, so that edits, deletions and exports work; only the question's row tells
that it is an answer. ADK gets the events of both runs as one run, and the message as the response of the call.
"""

from collections.abc import Mapping, Sequence

from google.adk.events.event import Event
from google.genai import types

from core.sessions.history import is_user_message
from core.sessions.resume import INPUT_CALL
from core.tools.adk_requests import Answer, MessageAnswer, to_response_part
from core.tools.question_form import EntryError, create_form, parse_answer


def filter_answer_events(events: Sequence[Event], run: str, answers: Sequence[MessageAnswer]) -> list[Event]:
    """Return the events that `merge_runs` needs as they are stored.

    These are the events with calls and the user messages, of the run and of the runs that it continues.

    Args:
        events: the events of the session.
        run: the id of the run.
        answers: the messages by which the run continues others.
    """
    runs = {run, *(answer.asking_run for answer in answers)}
    return [event for event in events if event.invocation_id in runs and (_has_calls(event) or is_user_message(event))]


def merge_runs(
    events: Sequence[Event], run: str, answers: Sequence[MessageAnswer], stored: Mapping[str, tuple[Event, str]]
) -> list[Event]:
    """Return the session's events, with a run and those that it continues as one run.

    Args:
        events: the events of the session.
        run: the id of the run, which all events of the merged run get.
        answers: the messages by which it continues others, oldest first; empty for a run that continues none.
        stored: stored events and their texts, by event id: those of `filter_answer_events`. They have the ids by which
            a workflow knows its calls; the history may have replaced them.
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


def hide_schemas(event: Event) -> Event:
    """Return an event whose requests for input have no schema.

    The answers were checked by their schemas already. ADK 2.13 would check them again, and fails at schemas that it
    cannot read, such as those with a list of types.
    """
    if event.content is None or not _requests_input(event):
        return event
    parts = [_hide_schema(part) for part in event.content.parts or ()]
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})


def _hide_schema(part: types.Part) -> types.Part:
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
    try:
        value = parse_answer(create_form(tool, call.args or {}), text)
    except EntryError:  # it fitted when it was accepted; ADK checks it too
        value = text
    return to_response_part(Answer(call_id, tool, value), call)
