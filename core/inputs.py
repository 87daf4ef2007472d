"""What a workflow asks people for (`RequestInput`), and what they have said to it.

What is said next in the conversation is the answer. It is stored as all else that is said, as a run of its own, so that
it can be edited, deleted and taken along; whether it answers something, the history alone tells. For ADK, a run that
answers is the one that has asked: it sees the events of both as one run's, and the message as the result of the call.
"""

from collections.abc import Mapping, Sequence

from google.adk.events.event import Event
from google.genai import types

from core.sessions.history import is_user_message

#: ADK: the name of the call by which a workflow, or a model, asks the user for something.
INPUT = "adk_request_input"


def asked_for(events: Sequence[Event], run: str) -> dict[str, str]:
    """The runs that one goes on with, oldest first, and itself; with each but the first, the id of the call that it
    answers. Empty for a run that was not asked for anything, or of which nothing is stored.
    """
    chain = dict[str, str]()
    waiting = list[str]()
    for event in events:
        if run in chain:
            break
        if is_user_message(event) and event.invocation_id not in chain:
            answered = waiting.pop(0) if waiting else ""
            chain = {**chain, event.invocation_id: answered} if answered else {event.invocation_id: ""}
            waiting = waiting if answered else []
        elif event.invocation_id in chain:
            waiting += [call.id for call in event.get_function_calls() if call.name == INPUT and call.id]
    return chain if chain.get(run) else {}


def as_one(events: Sequence[Event], run: str, chain: Mapping[str, str], words: Mapping[str, str]) -> list[Event]:
    """The events as ADK is to see them.

    Args:
        chain: see `asked_for`.
        words: what people have said, by the ids of the events.
    """
    return [
        event.model_copy(
            update={"invocation_id": run}
            | ({"content": _result(chain[event.invocation_id], words[event.id])} if event.id in words else {})
        )
        if event.invocation_id in chain
        else event
        for event in events
    ]


def answers(events: Sequence[Event], chain: Mapping[str, str]) -> list[Event]:
    """The messages that answer."""
    return [event for event in events if chain.get(event.invocation_id) and is_user_message(event)]


def _result(call: str, words: str) -> types.Content:
    answer = types.FunctionResponse(id=call, name=INPUT, response={"result": words})
    return types.Content(role="user", parts=[types.Part(function_response=answer)])
