"""Arguments of a tool call as people see them before they approve it.

They appear exactly as the tool gets them. Only known secrets are hidden. The model chooses the names and the form of
arguments: nothing is hidden because it looks like a secret.
"""

import json
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from core.messages.identity import INVISIBLE_CHARACTERS
from core.messages.inbox_message import storable_text
from core.models.tool_calls import JsonLimitError, check_json
from core.observability.messages import format_count
from core.observability.secret_redaction import ValuePath, has_known_secret, replace_known_secrets

#: The most characters of the arguments in a message.
MAX_ARGUMENTS = 1200

#: The most values of arguments that are indented: each line of a deep value begins with many spaces.
_MAX_INDENTED_VALUES = 5_000

#: The most characters of each text in arguments that are too long together: the first limit that fits.
_TEXT_LIMITS = (300, 100, 30)


@dataclass(frozen=True, slots=True)
class ShownArguments:
    """Arguments of a tool call as JSON, with notes in place of secrets.

    Attributes:
        text: the arguments for a message, of at most `MAX_ARGUMENTS` characters.
        full_text: all arguments; indented, unless they have over `_MAX_INDENTED_VALUES` values.
        missing: the number of characters that `text` leaves out.
        hidden: the number of secrets.
    """

    text: str
    full_text: str
    missing: int
    hidden: int


def show_arguments(arguments: Any, secret_paths: Set[ValuePath]) -> ShownArguments:
    """Return the arguments of a tool call as people see them.

    A note with the length replaces each value at `secret_paths`, and each known secret (such as tokens of the settings)
    in any text. Invisible characters are escaped.
    """
    masked = arguments
    hidden = 0
    if secret_paths or has_known_secret(_iterate_texts(arguments)):
        masked, hidden = _mask_secrets(arguments, secret_paths)
    text, missing = fit_arguments(masked)
    indent = 2 if _has_at_most(masked, _MAX_INDENTED_VALUES) else None
    return ShownArguments(text, _to_json(masked, indent=indent) if missing else text, missing, hidden)


def _iterate_texts(arguments: Any) -> Iterator[str]:
    pending = [arguments]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as value:
                yield from value
                pending += value.values()
            case list() as value:
                pending += value


def _has_at_most(arguments: Any, values: int) -> bool:
    try:
        check_json(arguments, values)
    except JsonLimitError:
        return False
    return True


def _mask_secrets(arguments: Any, secret_paths: Set[ValuePath]) -> tuple[Any, int]:
    hidden = 0

    def mask(length: int) -> str:
        nonlocal hidden
        hidden += 1
        return f"[hidden: {format_count(length, 'character')}]"

    def hide(value: Any, path: ValuePath) -> Any:
        if path in secret_paths and value is not None:
            return mask(len(value if isinstance(value, str) else json.dumps(value)))
        match value:
            case str():
                return replace_known_secrets(value, mask)
            case dict():
                masked = dict[str, Any]()
                for name, item in value.items():
                    key = replace_known_secrets(name, mask)
                    while key in masked:  # two names that differ only in a secret
                        key += "*"
                    masked[key] = hide(item, (*path, name))
                return masked
            case list():
                return [hide(item, (*path, i)) for i, item in enumerate(value)]
            case _:
                return value

    return hide(arguments, ()), hidden


def fit_arguments(arguments: Any) -> tuple[str, int]:
    """Return arguments as JSON of at most `MAX_ARGUMENTS` characters, and the number of missing ones."""
    whole = _to_json(arguments)
    if not _has_at_most(arguments, MAX_ARGUMENTS):  # cutting texts would not be enough
        return whole[:MAX_ARGUMENTS], len(whole) - MAX_ARGUMENTS
    for value in (arguments, *(_truncate_texts(arguments, limit) for limit in _TEXT_LIMITS)):
        compact = _to_json(value)
        missing = 0 if value is arguments else max(len(whole) - len(compact), 1)
        if len(compact) <= MAX_ARGUMENTS:  # with indentation, it is longer
            indented = _to_json(value, indent=2)
            return indented if len(indented) <= MAX_ARGUMENTS else compact, missing
    return compact[:MAX_ARGUMENTS], len(whole) - MAX_ARGUMENTS


def _to_json(arguments: Any, *, indent: int | None = None) -> str:
    """Return arguments as JSON, with JSON escapes for invisible characters."""
    if indent is None:
        text = json.dumps(arguments, ensure_ascii=False)
    else:  # `json` indents ten times more slowly, and by the depth of each value
        text = to_json(arguments, indent=indent, inf_nan_mode="constants").decode()
    if text.isascii() and "\x7f" not in text:  # `json` escapes the other invisible ones
        return text
    text = storable_text(text)
    escaped: str = INVISIBLE_CHARACTERS.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return escaped


def _truncate_texts(value: Any, max_length: int) -> Any:
    match value:
        case str() if len(value) > max_length:
            return f"{value[:max_length]}…"
        case dict():
            return {name: _truncate_texts(item, max_length) for name, item in value.items()}
        case list():
            return [_truncate_texts(item, max_length) for item in value]
        case _:
            return value
