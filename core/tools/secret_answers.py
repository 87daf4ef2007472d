"""Secret values in people's answers to questions, as the response schema marks them."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.observability.secret_redaction import RunSecrets, ValuePath, get_value
from core.sessions.resume import INPUT_CALL
from core.tools.adk_confirmations import find_masked_paths, has_secret_mark


def has_secret_fields(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether the response schema of a question marks a value as secret."""
    return has_secret_mark(_get_schema(tool, arguments))


def find_answer_paths(tool: str, arguments: Mapping[str, Any], answer: Any) -> list[ValuePath]:
    """Return the paths of the secret values in an answer.

    A text, number or list in which nothing is marked is secret as a whole if the schema has a secret field: a model
    accepts answers that do not fit its schema.
    """
    schema = _get_schema(tool, arguments)
    paths = find_masked_paths(schema, answer) if isinstance(schema, Mapping) else []
    is_other = isinstance(answer, str | int | float | list) and not isinstance(answer, bool)
    return [()] if is_other and not paths and has_secret_mark(schema) else paths


def list_message_secrets(tool: str, arguments: Mapping[str, Any], text: str, answer: Any) -> list[Any]:
    """Return the secrets in a message that answers a question; all of it, if a field is secret."""
    if not has_secret_fields(tool, arguments):
        return []
    return [text, *(get_value(answer, path) for path in find_answer_paths(tool, arguments, answer))]


def mask_answer(tool: str, arguments: Mapping[str, Any], answer: Any) -> Any:
    """Return an answer with `[redacted]` for its secret values."""
    return mask_paths(answer, find_answer_paths(tool, arguments, answer))


def mask_paths(value: Any, paths: Sequence[Sequence[str | int]]) -> Any:
    """Return a copy of a JSON value with `[redacted]` at some paths; None stays."""
    return RunSecrets().mask(value, frozenset(map(tuple, paths))) if paths else value


def _get_schema(tool: str, arguments: Mapping[str, Any]) -> Any:
    return arguments.get("response_schema", arguments.get("responseSchema")) if tool == INPUT_CALL else None
