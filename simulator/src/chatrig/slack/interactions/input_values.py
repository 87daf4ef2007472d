"""Parser of the values that users enter into Block Kit inputs.

It checks them like Slack's form. Slack: docs.slack.dev/reference/block-kit/block-elements. The texts of the errors are
those of the simulator.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from chatrig.slack.state.inputs import LIST_INPUTS, list_options
from chatrig.slack.state.markup import to_rich_text
from chatrig.slack.state.workspace import Workspace

#: Text, an option's value, a date (`2026-01-31`), a time (`09:30`), a Unix time, or an id; a list for several.
InputValue = str | Sequence[str] | None

#: The text of Slack's form for an empty input that is not optional.
REQUIRED_ERROR = "Please complete this required field."

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_URL = re.compile(r"https?://[^\s]+")


def parse_input(element: Mapping[str, Any], value: InputValue, workspace: Workspace) -> Any:
    """Convert an entered value to JSON as in `state` and `actions` of payloads.

    Args:
        element: the Block Kit element.
        value: the value, with users and channels by name or id; None or empty for no value.

    Returns:
        For an element with several values, a list of such values; [] without one. Otherwise one of these:
            - the JSON of an option or of a rich text;
            - the id of a user or conversation;
            - the Unix time of a date and time, as an int;
            - the entered text, for any other element;
            - None without a value.

    Raises:
        ValueError: Slack's form would not accept the value, or the element has none.
    """
    kind = element["type"]
    if kind == "file_input":
        raise ValueError("file_input is not modelled: leave it empty")
    parse = _PARSERS.get(kind.removeprefix("multi_"))
    if parse is None:
        raise ValueError(f"{kind} has no value")
    if kind not in LIST_INPUTS:
        if not (value is None or isinstance(value, str)):
            raise ValueError(f"{kind} takes one value")
        return parse(element, value, workspace) if value else None
    values = [value] if isinstance(value, str) else list(value or ())
    max_values = element.get("max_selected_items", len(values))
    if len(values) > max_values:
        raise ValueError(f"no more than {max_values} items")
    return [parse(element, value, workspace) for value in values]


def _parse_text(element: Mapping[str, Any], value: str, _: Workspace) -> str:
    min_chars, max_chars = element.get("min_length", 0), element.get("max_length", 3_000)
    if not min_chars <= len(value) <= max_chars:
        raise ValueError(f"must have {min_chars} to {max_chars} characters")
    return value


def _parse_number(element: Mapping[str, Any], value: str, _: Workspace) -> str:
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value} is not a number") from None
    if not element.get("is_decimal_allowed") and number != number.to_integral_value():
        raise ValueError(f"{value} is not a whole number")
    low, high = (Decimal(element[name]) if element.get(name) else number for name in ("min_value", "max_value"))
    if not low <= number <= high:
        raise ValueError(f"{value} is not between {low} and {high}")
    return value


def _parse_option(element: Mapping[str, Any], value: str, _: Workspace) -> dict[str, Any]:
    options = list_options(element)
    match = next((option for option in options if option["value"] == value), None)
    if match is None:
        raise ValueError(f"there is no option {value}; the options are {', '.join(o['value'] for o in options)}")
    return {
        **match,
        "text": {"emoji": True, **match["text"]} if match["text"]["type"] == "plain_text" else match["text"],
    }


def _parse_date(_: Mapping[str, Any], value: str, __: Workspace) -> str:
    return date.fromisoformat(value).isoformat()


def _parse_unix_time(_: Mapping[str, Any], value: str, __: Workspace) -> int:
    return int(value)


def _match(pattern: re.Pattern[str], expected: str) -> Callable[[Mapping[str, Any], str, Workspace], str]:
    """Return a parser that returns a text unchanged if all of it matches a pattern.

    For another text, the parser raises `ValueError`.

    Args:
        expected: noun for the accepted texts, for the error.
    """

    def parse(_: Mapping[str, Any], value: str, __: Workspace) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value} is not {expected}")
        return value

    return parse


def _parse_user(_: Mapping[str, Any], value: str, workspace: Workspace) -> str:
    user = workspace.users.get(value) or workspace.find_user_by_name(value)
    if user is None:
        raise ValueError(f"there is no user {value}")
    return user.id


def _parse_conversation(_: Mapping[str, Any], value: str, workspace: Workspace) -> str:
    channel = workspace.channels.get(value) or workspace.find_channel_by_name(value)
    if channel is None:
        raise ValueError(f"there is no channel {value}")
    return channel.id


def _parse_rich_text(_: Mapping[str, Any], value: str, __: Workspace) -> dict[str, Any]:
    (block,) = to_rich_text(value)
    return {"type": "rich_text", "elements": block["elements"]}


_PARSERS: Mapping[str, Callable[[Mapping[str, Any], str, Workspace], Any]] = {
    "plain_text_input": _parse_text,
    "email_text_input": _match(_EMAIL, "an email address"),
    "url_text_input": _match(_URL, "a URL"),
    "number_input": _parse_number,
    "rich_text_input": _parse_rich_text,
    **dict.fromkeys(("static_select", "external_select", "radio_buttons", "checkboxes", "overflow"), _parse_option),
    "datepicker": _parse_date,
    "timepicker": _match(_TIME, "a time such as 09:30"),
    "datetimepicker": _parse_unix_time,
    "users_select": _parse_user,
    "conversations_select": _parse_conversation,
    "channels_select": _parse_conversation,
}
