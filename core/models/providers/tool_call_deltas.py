"""Tool calls of an answer from their deltas, as OpenAI and compatible servers send them.

OpenAI numbers the calls by `index`, and sends the id and the name once. Other servers send the same index for all
calls or none, no id, one id for all calls, another id in each delta, whole arguments, or `{}` before the real ones. So
the index, the id, the name and the completeness of the arguments decide together if a delta begins a call.

Some servers refuse a result of a call if the call, or its message, comes back without a field that they sent, such as
DeepSeek's `reasoning_content`. These fields are the thought signature of the call.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from core.models.messages import clean_json
from core.models.provider import ToolCall
from core.models.tool_calls import parse_call

#: Fields of a call that have a thought signature: of Google's server, and of LiteLLM.
_SIGNATURE_FIELDS = ("extra_content", "provider_specific_fields")


@dataclass(slots=True)
class _Call:
    """Tool call whose arguments may be incomplete; `index` is None if the server sends none."""

    index: int | None
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    signature_fields: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def has_arguments(self) -> bool:
        """True if the arguments are complete, and not only the `{}` that some servers send before the real ones."""
        return self.is_complete and self.arguments.strip() != "{}"

    @property
    def is_complete(self) -> bool:
        """True if the arguments are a JSON object or text."""
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        if not last.rstrip().endswith(("}", '"')):  # parsing each delta would take quadratic time
            return False
        try:
            json.loads(self.arguments, strict=False)
        except (ValueError, RecursionError):
            return False
        return True


class SignedFields(NamedTuple):
    """Fields of a message and of one of its tool calls that a server requires with the call's result."""

    message: Mapping[str, Any]
    call: Mapping[str, Any]

    def to_signature(self) -> bytes | None:
        return json.dumps([*map(clean_json, self)]).encode() if self.message or self.call else None

    @classmethod
    def from_signature(cls, signature: bytes | None) -> "SignedFields":
        return cls(*json.loads(signature)) if signature else cls({}, {})


class ToolCallBuilder:
    """Builder of an answer's tool calls from their deltas."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add_delta(self, delta: Mapping[str, Any]) -> None:
        """Add an item of `tool_calls`, of any shape, to the call that it continues or begins."""
        function = delta.get("function")
        function = function if isinstance(function, Mapping) else {}
        index = delta.get("index")
        call_id = delta.get("id")
        name = function.get("name")
        index = index if isinstance(index, int) else None
        call_id, name = (value if isinstance(value, str) else "" for value in (call_id, name))
        arguments = function.get("arguments")
        piece = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call = self._find_call(index)
        if call is None or _begins_call(call, call_id, name):
            call = _Call(index, call_id, name)
            self._calls.append(call)
        elif piece.lstrip()[:1] in ("{", '"') and call.is_complete:  # whole arguments, once more or after `{}`
            call.pieces.clear()
        call.id = call.id or call_id
        call.name = call.name or name
        call.pieces.append(piece)
        call.signature_fields |= {name: delta[name] for name in _SIGNATURE_FIELDS if delta.get(name)}

    def build(self, message_fields: Mapping[str, Any], *, is_truncated: bool) -> list[ToolCall]:
        """Return the complete tool calls of the answer, with their thought signatures.

        The first call's signature has `message_fields`, the fields of the message with its thoughts. For `is_truncated`
        see `parse_call`.
        """
        calls = list[ToolCall]()
        for call in self._calls:
            parsed = parse_call(call.id, call.name, call.arguments, is_truncated=is_truncated)
            if parsed is not None:
                fields = SignedFields({} if calls else message_fields, call.signature_fields)
                calls.append(replace(parsed, signature=fields.to_signature()))
        return calls

    def _find_call(self, index: int | None) -> _Call | None:
        calls = (call for call in reversed(self._calls) if index is None or call.index in (index, None))
        return next(calls, None)


def _begins_call(call: _Call, call_id: str, name: str) -> bool:
    """Return whether a delta with this id and name begins a call after `call`, and does not continue it."""
    is_other_id = bool(call_id and call.id and call_id != call.id)
    if name and call.name:
        if name != call.name:
            return True
        return call.has_arguments or (is_other_id and call.is_complete)
    return is_other_id and call.has_arguments
