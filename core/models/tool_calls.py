"""A tool call, out of the text that a model wrote as its arguments."""

import json
from contextlib import suppress
from typing import Any, cast

from core.models.provider import ToolCall

#: How a call is named whose arguments are no JSON object. There is no such tool, which is what the model gets
#: told, with its own words before its eyes; no tool runs on arguments that were never meant.
MALFORMED_CALL = "malformed_call_to_"


def read_call(call_id: str, name: str, arguments: str, *, cut_short: bool) -> ToolCall | None:
    """The call; with `cut_short`, none if the arguments ended in the middle."""
    read = _object(arguments)
    if read is not None:
        return ToolCall(call_id, name, read)
    return None if cut_short else ToolCall(call_id, MALFORMED_CALL + name, {"arguments": arguments})


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, or none if it is no such thing; no text is no arguments."""
    with suppress(ValueError):
        arguments = json.loads(text.strip() or "{}", strict=False)
        if isinstance(arguments, dict):
            return cast(dict[str, Any], arguments)
    return None
