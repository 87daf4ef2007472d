"""Conversion of Discord's menus and modals to the client's fields and forms."""

from collections.abc import Mapping, Sequence
from typing import Any

from chatrig.client.forms import ClientField, ClientForm, ClientOption
from chatrig.discord import DiscordMessage, DiscordModal, DiscordSimulator
from chatrig.discord.interactions.modals import (
    CHECKBOX,
    CHECKBOX_GROUP,
    RADIO_GROUP,
    SELECT_TYPES,
    TEXT_DISPLAY,
    TEXT_INPUT,
    ModalValue,
)
from chatrig.discord.state.messages import iterate_components

#: Discord: style of a text input with several lines ("Text Input Styles").
PARAGRAPH_STYLE = 2


def list_menus(discord: DiscordSimulator, message: DiscordMessage) -> tuple[ClientField, ...]:
    """Return the select menus of a message that are not disabled, as client fields."""
    parts = iterate_components(message.content.components)
    return tuple(_create_menu(discord, p) for p in parts if p["type"] in SELECT_TYPES and not p.get("disabled"))


def convert_modal(discord: DiscordSimulator, modal: DiscordModal) -> ClientForm:
    """Convert an open Discord modal to a client form."""
    texts = (part["content"] for part in modal.components if part["type"] == TEXT_DISPLAY)
    return ClientForm(
        modal.interaction.id,
        modal.title,
        "\n\n".join(texts),
        tuple(_create_field(discord, name, part) for name, part in modal.inputs.items()),
        "Submit",
        "Cancel",
    )


def to_modal_value(part: Mapping[str, Any], values: Sequence[str]) -> ModalValue:
    """Convert the values of a client field to the value of a component of a modal.

    Args:
        part: JSON of the component.

    Returns:
        For a checkbox: whether there are values. For a text input or radio group: the first value, or "" without one.
        For other components: the list of values.
    """
    if part["type"] == CHECKBOX:
        return bool(values)
    return next(iter(values), "") if part["type"] in (TEXT_INPUT, RADIO_GROUP) else list(values)


def _create_menu(discord: DiscordSimulator, part: Mapping[str, Any]) -> ClientField:
    label = part.get("placeholder") or "Make a selection"
    return ClientField(
        id=part["custom_id"],
        label=label,
        hint=label,
        values=_list_presets(part),
        options=_list_options(discord, part),
        takes_several=_takes_several(part),
    )


def _create_field(discord: DiscordSimulator, name: str, part: Mapping[str, Any]) -> ClientField:
    kind = part["type"]
    return ClientField(
        id=name,
        label=part.get("label") or name,
        hint=part.get("placeholder") or "",
        description=part.get("description") or "",
        values=_list_presets(part),
        options=_list_options(discord, part),
        takes_several=kind in (CHECKBOX, CHECKBOX_GROUP) or _takes_several(part),
        is_multiline=part.get("style") == PARAGRAPH_STYLE,
        is_required=kind != CHECKBOX and part.get("required") is not False,
    )


def _takes_several(part: Mapping[str, Any]) -> bool:
    """Return whether a user may select several options of a component, or no option."""
    most: int = part.get("max_values") or 1
    return most > 1 or part.get("min_values") == 0


def _list_presets(part: Mapping[str, Any]) -> tuple[str, ...]:
    if part["type"] == TEXT_INPUT:
        return (part["value"],) if part.get("value") else ()
    if part["type"] == CHECKBOX:
        return ("true",) if part.get("default") else ()
    selected = [option["value"] for option in part.get("options", ()) if option.get("default")]
    return (*selected, *(default["id"] for default in part.get("default_values") or ()))


def _list_options(discord: DiscordSimulator, part: Mapping[str, Any]) -> tuple[ClientOption, ...]:
    if part["type"] == CHECKBOX:
        return (ClientOption("true", "Yes"),)
    return tuple(ClientOption(value, label) for value, label in discord.list_menu_options(part).items())
