"""Input requests of workflows (`RequestInput`) and the messages that answer them.

The next message of the conversation is the answer. It is stored as a run of its own, so that edits, deletions and
exports work; only the history tells that it is an answer. ADK sees the events of both runs as one run, and the message
as the response of the call.
"""

from collections.abc import Mapping, Sequence

from google.adk.events.event import Event
from google.genai import types

from core.sessions.history import is_user_message
from core.sessions.resume import INPUT_CALL


def find_input_chain(events: Sequence[Event], run: str, workflow: str) -> dict[str, str]:
    """Return the runs that a run resumes, oldest first, and the run itself.

    Returns:
        The id of the answered call, by run; empty for the first run. An empty dict if the workflow of that name
        requested no input, or nothing of the run is stored.
    """
    chain = dict[str, str]()
    waiting = list[str]()
    for event in events:
        if run in chain:
            break
        if is_user_message(event) and event.invocation_id not in chain:
            if waiting:
                chain[event.invocation_id] = waiting.pop(0)
            else:
                chain = {event.invocation_id: ""}
        elif event.invocation_id in chain:
            calls = event.get_function_calls() if (event.node_info.path or "").startswith(f"{workflow}@") else []
            waiting += [call.id for call in calls if call.name == INPUT_CALL and call.id]
            withdrawn = {answer.id for answer in event.get_function_responses()}
            waiting = [call for call in waiting if call not in withdrawn]
    return chain if chain.get(run) else {}


def merge_runs(
    events: Sequence[Event], run: str, workflow: str, stored: Mapping[str, tuple[Event, str]]
) -> list[Event]:
    """Return the events as one run, for ADK, of a run that answers an input request.

    Args:
        stored: stored events and their texts, by event id: those of `filter_input_events`. A workflow knows its
            calls by its own ids, which a session's history has only once.
    """
    merged = [stored[event.id][0] if _requests_input(event) and event.id in stored else event for event in events]
    chain = find_input_chain(merged, run, workflow)
    for i, event in enumerate(merged):
        if call := chain.get(event.invocation_id) if is_user_message(event) else "":
            text = stored[event.id][1] if event.id in stored else ""
            merged[i] = event.model_copy(update={"content": _to_response(call, text)})
    return [
        event.model_copy(update={"invocation_id": run}) if event.invocation_id in chain else event for event in merged
    ]


def filter_input_events(events: Sequence[Event], chain: Mapping[str, str]) -> list[Event]:
    """Return the events that request input, and those that answer."""
    return [
        event for event in events if event.invocation_id in chain and (_requests_input(event) or is_user_message(event))
    ]


def _requests_input(event: Event) -> bool:
    return any(call.name == INPUT_CALL for call in event.get_function_calls())


def _to_response(call: str, words: str) -> types.Content:
    answer = types.FunctionResponse(id=call, name=INPUT_CALL, response={"result": words})
    return types.Content(role="user", parts=[types.Part(function_response=answer)])
