"""Checks of JSON structures, with Slack's error texts.

A check is called with a value and its JSON pointer, and yields the errors of the value. The texts of the errors are
Slack's, as users report them: "invalid additional property: emoji [json-pointer:/blocks/0/text]" (grafana/oncall #702).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

Check = Callable[[Any, str], Iterator[str]]


def _error(text: str, path: str) -> str:
    return f"{text} [json-pointer:{path}]"


def anything(_: Any, __: str) -> Iterator[str]:
    """Accept every value: a check that yields no errors."""
    return iter(())


def string(max_chars: int | None = None, *, min_chars: int = 0, choices: Collection[str] = ()) -> Check:
    """Return a check that accepts a string of a given length.

    Args:
        max_chars: greatest length; None for no limit.
        choices: the only accepted strings; empty for any.
    """

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield _error("must provide a string", path)
        elif choices and value not in choices:
            yield _error(f"must be one of {', '.join(choices)}", path)
        elif len(value) < min_chars:
            yield _error(f"must be more than {min_chars - 1} characters", path)
        elif max_chars is not None and len(value) > max_chars:
            yield _error(f"must be less than {max_chars + 1} characters", path)

    return check


def boolean(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield _error("must provide a boolean", path)


def integer(low: int | None = None, high: int | None = None) -> Check:
    """Return a check that accepts an integer from `low` to `high`; None for no limit."""

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, int) or isinstance(value, bool):
            yield _error("must provide an integer", path)
        elif (low is not None and value < low) or (high is not None and value > high):
            yield _error(f"must be between {low} and {high}", path)

    return check


def number(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        yield _error("must provide a number", path)


def nullable(check_value: Check) -> Check:
    """Return a check that accepts null, and any value that passes `check_value`."""

    def check(value: Any, path: str) -> Iterator[str]:
        if value is not None:
            yield from check_value(value, path)

    return check


def items(check_item: Check, low: int = 0, high: int | None = None) -> Check:
    """Return a check that accepts an array of items that pass `check_item`.

    Args:
        low: the least number of items.
        high: the greatest number of items; None for no limit.
    """

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield _error("must provide an array", path)
            return
        if len(value) < low:
            yield _error(f"no fewer than {low} items allowed", path)
        if high is not None and len(value) > high:
            yield _error(f"no more than {high} items allowed", path)
        for index, item in enumerate(value):
            yield from check_item(item, f"{path}/{index}")

    return check


def shape(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, one_of: Collection[str] = ()
) -> Check:
    """Return a check that accepts a JSON object with these fields and no others.

    A field whose value is null counts as missing.

    Args:
        required: checks of the fields that the object must have.
        optional: checks of the fields that the object may have.
        one_of: optional fields of which the object must have at least one.
    """
    fields = {**required, **(optional or {})}

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield _error("must provide an object", path)
            return
        present = {name: inner for name, inner in value.items() if inner is not None}
        for name in required.keys() - present.keys():
            yield _error(f"missing required field: {name}", path)
        if one_of and not present.keys() & set(one_of):
            yield _error("must define either " + " or ".join(f"`{name}`" for name in one_of), path)
        for name, inner in present.items():
            if name in fields:
                yield from fields[name](inner, f"{path}/{name}")
            else:
                yield _error(f"invalid additional property: {name}", path)

    return check


def variants(checks: Mapping[str, Check]) -> Check:
    """Return a check that accepts an object that passes the check for its `type`.

    A missing or other type is an error.
    """

    def check(value: Any, path: str) -> Iterator[str]:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping):
            yield _error("must provide an object", path)
        elif kind is None:
            yield _error("missing required field: type", path)
        elif kind not in checks:
            yield _error(f"unsupported type: {kind}", f"{path}/type")
        else:
            yield from checks[kind](value, path)

    return check
