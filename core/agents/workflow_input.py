"""What a workflow asks people for (`RequestInput`), and what they have said to it.

What is said next in the conversation is the answer. It is stored as all else that is said, as a run of its own, so that
it can be edited, deleted and taken along; whether it answers something, the history alone tells. For ADK, a run that
answers is the one that has asked: it sees the events of both as one run's, and the message as the result of the call.
"""

from collections.abc import Mapping, Sequence

from google.adk.events.event import Event
from google.genai import types

from core.sessions.history import is_user_message
from core.sessions.resume import INPUT_CALL


def find_input_chain(events: Sequence[Event], run: str, workflow: str) -> dict[str, str]:
    """The runs that one goes on with, oldest first, and itself; with each but the first, the id of the call that it
    answers. Empty for a run that was not asked for anything by the workflow of that name, or of which nothing
    is stored.
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
    """The events as ADK is to see them, for a run that was asked for something.

    Args:
        stored: the `turning` ones as they were stored, by their ids, and what people have said in them: a workflow
            knows its calls by the ids that it has given them, which a history has only once.
    """
    told = [stored[event.id][0] if _requests_input(event) and event.id in stored else event for event in events]
    chain = find_input_chain(told, run, workflow)
    for i, event in enumerate(told):
        if call := chain.get(event.invocation_id) if is_user_message(event) else "":
            words = stored[event.id][1] if event.id in stored else ""
            told[i] = event.model_copy(update={"content": _to_response(call, words)})
    return [
        event.model_copy(update={"invocation_id": run}) if event.invocation_id in chain else event for event in told
    ]


def filter_input_events(events: Sequence[Event], chain: Mapping[str, str]) -> list[Event]:
    """What asks, and what answers."""
    return [
        event for event in events if event.invocation_id in chain and (_requests_input(event) or is_user_message(event))
    ]


def _requests_input(event: Event) -> bool:
    return any(call.name == INPUT_CALL for call in event.get_function_calls())


def _to_response(call: str, words: str) -> types.Content:
    answer = types.FunctionResponse(id=call, name=INPUT_CALL, response={"result": words})
    return types.Content(role="user", parts=[types.Part(function_response=answer)])
