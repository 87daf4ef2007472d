"""Texts of messages for people: counts with their nouns, and values that pydantic refuses.

No text is of pydantic, whose words are for programmers.
"""

import json
from collections.abc import Collection, Mapping
from decimal import Decimal
from difflib import get_close_matches
from types import MappingProxyType

from pydantic_core import ErrorDetails

from core.observability.secret_redaction import redact_secrets

#: Most characters of a value in a message.
_MAX_VALUE_CHARS = 60

_NUMBERS = _NUMBER, _WHOLE_NUMBER, _DOLLARS = "a number", "a whole number", "a number of dollars"
_BOOLEAN = "true or false"
_LIST = "a list"
_TABLE = "a table"
_AMOUNT = "a number of dollars below 1,000,000, with at most 6 decimals"

#: The expected values by pydantic's type of the error.
_EXPECTED: Mapping[str, str] = MappingProxyType(
    {
        "string_type": "a text",
        "path_type": "the path of a file",
        "float_parsing": _NUMBER,
        "float_type": _NUMBER,
        "finite_number": _NUMBER,
        "int_parsing": _WHOLE_NUMBER,
        "int_parsing_size": _WHOLE_NUMBER,
        "int_from_float": _WHOLE_NUMBER,
        "int_type": _WHOLE_NUMBER,
        "decimal_parsing": _DOLLARS,
        "decimal_max_digits": _AMOUNT,
        "decimal_max_places": _AMOUNT,
        "decimal_whole_digits": _AMOUNT,
        "bool_parsing": _BOOLEAN,
        "bool_type": _BOOLEAN,
        "tuple_type": _LIST,
        "mapping_type": _TABLE,
        "dict_type": _TABLE,
        "model_type": _TABLE,
    }
)

#: The texts of limits by pydantic's type of the error; names in braces are of pydantic's context.
_LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "greater_than": "more than {gt:.15g}",
        "greater_than_equal": "at least {ge:.15g}",
        "less_than": "less than {lt:.15g}",
        "less_than_equal": "at most {le:.15g}",
        "string_too_long": "at most {max_length} characters long",
        "literal_error": "{expected}",
        "enum": "{expected}",
        "too_long": "at most {max_length} entries long",
    }
)


def describe_invalid_value(
    fault: ErrorDetails,
    *,
    rule: str | None = None,
    example: int | float | Decimal | None = None,
    known_keys: Collection[str] = (),
) -> str:
    """Return a text such as `it must be a whole number, such as 5 (it is 'x')`.

    Args:
        fault: an item of `ValidationError.errors()`; its `input` is shown, with secrets redacted, unless it is None.
        rule: text after "it must be" for a value that does not match the pattern of its field.
        example: a valid number.
        known_keys: keys of the table with the value, for one that is not among them.
    """
    kind = fault["type"]
    context = fault.get("ctx", {})
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        near = get_close_matches(str(fault["loc"][-1]), known_keys, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"write one of {', '.join(known_keys)}"
        return f"there is no such key: {remedy}"
    if kind == "value_error":
        text = str(context["error"])
    elif kind in _LIMITS:
        text = f"it must be {_LIMITS[kind].format_map(context)}"
    else:
        expected = _EXPECTED.get(kind) or rule or "in another form"
        text = f"it must be {expected}{f', such as {example:g}' if example and expected in _NUMBERS else ''}"
    value = fault["input"]
    begins_with_value = text.startswith(("'", f"{value} ")) and not text.startswith("it must ")
    if value is None or begins_with_value:  # or with a part of it
        return text
    shown = redact_secrets(repr(value) if isinstance(value, str) else json.dumps(value, default=str))
    return f"{text} (it is {shown[:_MAX_VALUE_CHARS]}{'…' * (len(shown) > _MAX_VALUE_CHARS)})"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 message` or `2,000 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
