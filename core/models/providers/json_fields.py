"""Fields of JSON that a model server sent: of any shape, and read without an exception."""

from collections.abc import Mapping
from math import isfinite
from typing import Any


def list_objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the JSON objects in a list, or a single one in a list."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Mapping)]


def get_text(fields: Any, name: str) -> str:
    """Return a text field; empty if it is missing or no text."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, str) else ""


def get_count(fields: Any, name: str) -> int:
    """Return a count, also one that is sent as a text; 0 if it is missing or cannot be read."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0
    return int(number) if isfinite(number) and number > 0 else 0
