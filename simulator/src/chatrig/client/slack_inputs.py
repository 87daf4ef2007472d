"""Conversion of Slack's menus, pickers and modals to client fields and forms.

Slack: docs.slack.dev/reference/block-kit/block-elements. A menu with external options is not shown: the simulator does
not request its options from the app.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from chatrig.client.forms import ClientField, ClientForm, ClientOption, InputKind
from chatrig.slack import SlackMessage, SlackSimulator, SlackView
from chatrig.slack.interactions.input_values import InputValue
from chatrig.slack.state.controls import BlockControl, find_controls
from chatrig.slack.state.inputs import INPUT_FIELDS, LIST_INPUTS, find_elements, list_options

#: Pickers: the kind of their entry, and Slack's text before a selection.
_PICKERS = {
    "datepicker": (InputKind.DATE, "Select a date"),
    "timepicker": (InputKind.TIME, "Select a time"),
    "datetimepicker": (InputKind.DATE_TIME, "Select a date and time"),
}
_OPTION_INPUTS = {"static_select", "radio_buttons", "checkboxes"}
_LISTS = {"users_select", "conversations_select", "channels_select"}
#: Types of conversations in the `filter` of a menu.
_CONVERSATION_TYPES = {"channel": "public", "group": "private", "im": "im"}


def list_buttons(slack: SlackSimulator, message: SlackMessage) -> list[tuple[str, BlockControl]]:
    """Return the buttons of a message as pairs of an id and a button.

    Feedback buttons and the options of an overflow menu count as buttons, those of other menus do not. An id is the
    control's own id (see `BlockControl.id`). If any two buttons of the message share one, all its buttons have
    `BLOCK_ID/CONTROL_ID` instead.
    """
    controls = _filter_buttons(find_controls(message.blocks or ()))
    if len({control.id for control in controls}) == len(controls):
        return [(control.id, control) for control in controls]
    return [(f"{control.block_id}/{control.id}", control) for control in _filter_buttons(slack.list_controls(message))]


def list_menus(slack: SlackSimulator, message: SlackMessage, user: str | None) -> tuple[ClientField, ...]:
    """Return the menus and pickers of a message as client fields.

    Args:
        user: the id of the user who sees the message. The fields have the values that this user entered, else the
            initial ones. The user's DM with the bot is an option of conversation menus. None: initial values, no DM.
    """
    if not any(_is_menu(element) for _, element in find_elements(message.blocks or ())):
        return ()
    inputs = ((f"{block}/{part['action_id']}", part, value) for block, part, value in slack.list_inputs(user, message))
    return tuple(_create_menu(slack, id_, element, value, user) for id_, element, value in inputs if _is_menu(element))


def convert_view(slack: SlackSimulator, view: SlackView) -> ClientForm:
    """Convert an open Slack modal to a client form."""
    blocks = view.content["blocks"]
    texts = (block["text"]["text"] for block in blocks if isinstance(block.get("text"), Mapping))
    labels = {name: (view.content.get(name) or {}).get("text", "") for name in ("submit", "close")}
    return ClientForm(
        view.id,
        view.title,
        "\n\n".join(texts),
        tuple(_create_field(slack, view, block) for block in view.inputs.values()),
        labels["submit"],
        labels["close"] or "Close",
    )


def to_input_value(element: Mapping[str, Any], values: Sequence[str]) -> InputValue:
    """Convert the values of a client field to the value of a Block Kit element.

    Args:
        element: JSON of the element.

    Returns:
        The list of values for an element that takes several; otherwise the first value, or "" without one. A date and
        time in ISO format, local unless it has an offset, becomes a Unix timestamp as a text of digits.

    Raises:
        ValueError: the value is not a date and time.
    """
    if element["type"] in LIST_INPUTS:
        return list(values)
    value = next(iter(values), "")
    if element["type"] != "datetimepicker" or not value:
        return value
    try:
        return str(int(datetime.fromisoformat(value).timestamp()))
    except ValueError:
        raise ValueError(f"{value} is not a date and time such as 2026-01-31 09:30") from None


def _filter_buttons(controls: Iterable[BlockControl]) -> list[BlockControl]:
    return [control for control in controls if control.element["type"] not in INPUT_FIELDS]


def _is_menu(element: Mapping[str, Any]) -> bool:
    return element["type"].removeprefix("multi_") in _OPTION_INPUTS | _LISTS | _PICKERS.keys()


def _create_menu(
    slack: SlackSimulator, id_: str, element: Mapping[str, Any], value: Any, user: str | None
) -> ClientField:
    kind, text = _PICKERS.get(element["type"], (InputKind.TEXT, "Choose an option"))
    label = (element.get("placeholder") or {}).get("text") or text
    return ClientField(
        id=id_,
        label=label,
        hint=label,
        values=_list_values(element, value),
        options=_list_choices(slack, element, user),
        takes_several=element["type"] in LIST_INPUTS,
        kind=kind,
    )


def _create_field(slack: SlackSimulator, view: SlackView, block: Mapping[str, Any]) -> ClientField:
    element = block["element"]
    return ClientField(
        id=element["action_id"],
        label=block["label"]["text"],
        hint=(element.get("placeholder") or {}).get("text", ""),
        description=(block.get("hint") or {}).get("text", ""),
        values=_list_values(element, view.state.get_value(block["block_id"], element)),
        options=_list_choices(slack, element, view.user.id),
        takes_several=element["type"] in LIST_INPUTS,
        is_multiline=bool(element.get("multiline")),
        is_required=not block.get("optional"),
        error=view.errors.get(block["block_id"], ""),
        kind=_PICKERS.get(element["type"], (InputKind.TEXT, ""))[0],
    )


def _list_values(element: Mapping[str, Any], value: Any) -> tuple[str, ...]:
    """Return the present value of a Block Kit element as texts.

    Args:
        element: JSON of the element.
        value: the value as in payloads; None, "" or an empty list for none.

    Returns:
        The values of the selected options, the selected ids, the entered text, or the local date and time in ISO
        format; empty without a value.
    """
    entries = value if isinstance(value, list) else [] if value in (None, "") else [value]
    if element["type"] == "datetimepicker":
        return tuple(datetime.fromtimestamp(entry).isoformat(timespec="minutes") for entry in entries)
    return tuple(str(entry.get("value", "") if isinstance(entry, Mapping) else entry) for entry in entries)


def _list_choices(slack: SlackSimulator, element: Mapping[str, Any], user: str | None) -> tuple[ClientOption, ...]:
    """Return the options of a Block Kit element: its own ones, or users or channels.

    A users menu has all users. A menu of conversations or channels has those that its type and filter allow.

    Args:
        user: the id of the user whose DM with the bot is an option; None for no DM.
    """
    kind = element["type"].removeprefix("multi_")
    if kind not in _LISTS:
        return tuple(ClientOption(option["value"], option["text"]["text"]) for option in list_options(element))
    if kind == "users_select":
        return tuple(ClientOption(person.id, person.name) for person in slack.people.values())
    types = {"public"} if kind == "channels_select" else set((element.get("filter") or {}).get("include") or ())
    places = [*slack.channels.values(), *([slack.open_dm(user)] if user else [])]
    return tuple(
        ClientOption(place.id, f"@{slack.bot_name}" if place.is_dm else f"#{place.name}")
        for place in dict.fromkeys(places)
        if not types or _CONVERSATION_TYPES[place.type] in types
    )
