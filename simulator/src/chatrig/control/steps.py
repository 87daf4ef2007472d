"""Scripted responses of models as JSON, and the received requests as JSON.

A step is an object with the name of its class and its fields: `{"type": "Say", "text": "Hello", "pieces": 3}`.
"""

from collections.abc import Sequence
from typing import Any, get_args

from chatrig.control.arguments import read_arguments
from chatrig.models import Fail, ReceivedRequest, ScriptedResponse, Step

_STEPS = {step.__name__: step for step in get_args(Step)}


def parse_responses(responses: object) -> list[ScriptedResponse]:
    """Return the scripted responses of a JSON list; each is a text, a step or a list of steps.

    Raises:
        ValueError: the JSON is no such list; the message says why.
    """
    if not isinstance(responses, list):
        raise ValueError("the responses must be a list of texts, steps and lists of steps")
    return [
        [_parse_step(step) for step in response] if isinstance(response, list) else _parse_text_or_step(response)
        for response in responses
    ]


def create_request_json(request: ReceivedRequest) -> dict[str, Any]:
    """Return the JSON of a received request, without its headers, which contain a key."""
    return {
        "model": request.model,
        "text": request.text,
        "system": request.system,
        "messages": [{"role": role, "text": text} for role, text in request.messages],
        "tools": list(request.tools),
        "tool_results": [
            {"id": result.id, "name": result.name, "content": result.content} for result in request.tool_results
        ],
        "is_streaming": request.is_streaming,
        "body": request.body,
    }


def _parse_text_or_step(response: object) -> str | Step:
    return response if isinstance(response, str) else _parse_step(response)


def _parse_step(step: object) -> Step:
    names: Sequence[str] = list(_STEPS)
    if not isinstance(step, dict) or step.get("type") not in names:
        raise ValueError(f"a step must be an object whose 'type' is one of {', '.join(names)}")
    kind = step["type"]
    fields = {name: value for name, value in step.items() if name != "type"}
    try:
        parsed: Step = _STEPS[kind](**read_arguments(_STEPS[kind], fields))
        if isinstance(parsed, Fail):
            check_status(parsed.status)
    except ValueError as error:
        raise ValueError(f"{kind}: {error}") from None
    return parsed


def check_status(status: int) -> None:
    """Raise `ValueError` for a number that is no HTTP status of an error."""
    if not 400 <= status <= 599:
        raise ValueError("the field 'status' must be from 400 to 599")
