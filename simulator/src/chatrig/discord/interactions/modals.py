"""Modals, and the values that users enter into modals and message menus.

Discord: docs.discord.com/developers/components/reference. A modal has text inputs in action rows, or labels with one
input each. File uploads in modals are not modelled.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chatrig.discord.api.requests import create_form_error
from chatrig.discord.interactions.interaction import ACTION_ROW, LABEL, DiscordInteraction, DiscordModal, iterate_inputs
from chatrig.discord.state.components import assign_component_ids
from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import DiscordUser, iterate_components
from chatrig.discord.state.payloads import DiscordPayloads, Json

STRING_SELECT, TEXT_INPUT, TEXT_DISPLAY, FILE_UPLOAD = 3, 4, 10, 19
USER_SELECT, ROLE_SELECT, MENTIONABLE_SELECT, CHANNEL_SELECT = 5, 6, 7, 8
RADIO_GROUP, CHECKBOX_GROUP, CHECKBOX = 21, 22, 23
SELECT_TYPES = (STRING_SELECT, USER_SELECT, ROLE_SELECT, MENTIONABLE_SELECT, CHANNEL_SELECT)
#: Discord: "Between 1 and 5 (inclusive) components that make up the modal".
MAX_MODAL_COMPONENTS = 5
MAX_INPUT_LENGTH = 4000

#: A text, the value of a radio group, a checkbox, or the values of a select or checkbox group.
ModalValue = str | bool | Sequence[str]


def create_modal(interaction: DiscordInteraction, form: Mapping[str, Any]) -> DiscordModal:
    """Return the modal in the bot's response to an interaction.

    Args:
        form: the field `data` of the response.

    Raises:
        DiscordError: 50035, there are too many components, two have the same custom id, or one is invalid.
    """
    components = form["components"]
    if len(components) > MAX_MODAL_COMPONENTS:
        message = f"Must be between 1 and {MAX_MODAL_COMPONENTS} in length."
        raise create_form_error("data.components", "BASE_TYPE_BAD_LENGTH", message)
    ids = set[str]()
    for number, component in enumerate(components):
        place = f"data.components.{number}"
        if component["type"] == ACTION_ROW:
            if len(component["components"]) > 1:
                message = "The specified component exceeds the maximum width"
                raise create_form_error(f"{place}.components.1", "COMPONENT_LAYOUT_WIDTH_EXCEEDED", message)
            if not component["components"][0].get("label"):
                raise create_form_error(f"{place}.components.0.label", "BASE_TYPE_REQUIRED", "This field is required")
        for part in iterate_inputs([component]):
            if part["custom_id"] in ids:
                message = "Component custom id cannot be duplicated"
                raise create_form_error(place, "COMPONENT_CUSTOM_ID_DUPLICATED", message)
            ids.add(part["custom_id"])
            _check_limits(place, part)
    return DiscordModal(
        interaction.user, form["custom_id"], form["title"], assign_component_ids(components), interaction
    )


def _check_limits(place: str, part: Mapping[str, Any]) -> None:
    for min_key, max_key in (("min_length", "max_length"), ("min_values", "max_values")):
        if part.get(min_key) is not None and part.get(max_key) is not None and part[min_key] > part[max_key]:
            message = f"{min_key} must be less than or equal to {max_key}."
            raise create_form_error(f"{place}.{min_key}", "BASE_TYPE_BAD_RANGE", message)


def create_submission(
    modal: DiscordModal, values: Mapping[str, ModalValue], guild: Guild, payloads: DiscordPayloads
) -> Json:
    """Return the `data` of the interaction that submits a modal.

    Args:
        values: values by custom id; an omitted one is the preset value.

    Returns:
        `custom_id`, `components` with the entered values, and `resolved` if users, roles or channels are selected.

    Raises:
        ValueError: an input does not exist, or does not accept its value.
    """
    inputs = modal.inputs
    if unknown := set(values) - set(inputs):
        raise ValueError(f"the modal has no input {min(unknown)}")
    entered = {name: _parse_value(part, values.get(name), guild) for name, part in inputs.items()}

    def submit(component: Mapping[str, Any]) -> Json:
        about = {"type": component["type"], "id": component["id"]}
        if component["type"] == ACTION_ROW:
            return about | {"components": [submit(part) for part in component["components"]]}
        if component["type"] == LABEL:
            return about | {"component": submit(component["component"])}
        if component["type"] == TEXT_DISPLAY:
            return about
        name = component["custom_id"]
        value_field = "value" if component["type"] in (TEXT_INPUT, RADIO_GROUP, CHECKBOX) else "values"
        return about | {"custom_id": name, value_field: entered[name]}

    data = {"custom_id": modal.custom_id, "components": [submit(component) for component in modal.components]}
    selected = [value for name, part in inputs.items() if part["type"] in SELECT_TYPES[1:] for value in entered[name]]
    return data | create_resolved(selected, guild, payloads)


def create_selection(
    components: Sequence[Mapping[str, Any]],
    custom_id: str,
    values: Sequence[str],
    guild: Guild,
    payloads: DiscordPayloads,
) -> Json:
    """Return the `data` of the interaction that selects values in a message's menu.

    Args:
        components: the components of the message.
        custom_id: the custom id of the menu.
        values: the selected values of options, or ids of users, roles or channels.

    Returns:
        `custom_id`, `component_type`, `id` and `values`; also `resolved` for a menu of users, roles or channels.

    Raises:
        ValueError: the menu does not exist, is disabled, or does not accept the values.
    """
    parts = iterate_components(assign_component_ids(components))
    select = next((part for part in parts if part.get("custom_id") == custom_id), None)
    if select is None or select["type"] not in SELECT_TYPES or select.get("disabled"):
        raise ValueError(f"there is no menu {custom_id} or it is disabled")
    # Discord: `required` has no effect in messages.
    selected = _parse_list({**select, "required": select.get("min_values", 1) > 0}, values, guild)
    data: Json = {"custom_id": custom_id, "component_type": select["type"], "id": select["id"], "values": selected}
    return data | (create_resolved(selected, guild, payloads) if select["type"] != STRING_SELECT else {})


def _parse_value(part: Mapping[str, Any], value: ModalValue | None, guild: Guild) -> Any:
    """Return the value of a modal's input as in payloads.

    Args:
        part: JSON of the input.
        value: the entered value; None for the preset value.

    Returns:
        A text for a text input ("" if empty), a bool for a checkbox, the selected value or None for a radio group. For
        any other input, the list of the selected values or ids.

    Raises:
        ValueError: the input does not accept the value.
    """
    kind = part["type"]
    if kind == TEXT_INPUT:
        return _parse_text(part, part.get("value") or "" if value is None else value)
    if kind == CHECKBOX:
        return bool(part.get("default") if value is None else value)
    if value is None:
        value = [option["value"] for option in part.get("options", ()) if option.get("default")]
        value += [default["id"] for default in part.get("default_values") or ()]
    if kind == FILE_UPLOAD and value:
        raise ValueError("the simulator uploads no files in modals")
    if kind != RADIO_GROUP:
        return _parse_list(part, value, guild)
    chosen = _parse_list(part, [value] if isinstance(value, str) and value else value, guild)
    return chosen[0] if chosen else None


def _parse_text(part: Mapping[str, Any], value: ModalValue) -> str:
    min_length, max_length = part.get("min_length") or 0, part.get("max_length") or MAX_INPUT_LENGTH
    if not isinstance(value, str):
        raise ValueError(f"{part['label']} takes a text")
    if not value and part.get("required") is not False:
        raise ValueError(f"{part['label']} is required")
    if value and not min_length <= len(value) <= max_length:
        raise ValueError(f"{part['label']} takes {min_length} to {max_length} characters")
    return value


def _parse_list(part: Mapping[str, Any], value: Any, guild: Guild) -> list[str]:
    """Return the selected values of an input or menu as a list, after checking them.

    Args:
        part: JSON of the input or menu.
        value: the list or tuple of selected values; anything else is refused.

    Raises:
        ValueError: `value` is no list, has too few, too many or equal values, or one that is not an option.
    """
    name = part.get("label") or part["custom_id"]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} takes a list of values")
    if not value and part.get("required") is False:
        return []
    options = part.get("options") or ()
    # Discord: a group of checkboxes accepts any number of values unless it has limits, other inputs one value.
    default = len(options) if part["type"] == CHECKBOX_GROUP else 1
    min_values, max_values = (default if part.get(f) is None else part[f] for f in ("min_values", "max_values"))
    if part["type"] == CHECKBOX_GROUP and part.get("min_values") is None:
        min_values = 1
    if not min_values <= len(value) <= max_values or len(set(value)) < len(value):
        raise ValueError(f"{name} takes {min_values} to {max_values} different values")
    if unknown := set(value) - list_menu_options(part, guild).keys():
        raise ValueError(f"{min(unknown)} is not an option of {name}")
    return list(value)


def list_menu_options(part: Mapping[str, Any], guild: Guild) -> dict[str, str]:
    """Return the options of a menu or group: displayed names by value.

    They are its own options, or the server's members, roles (`@team`) or channels (`#general`) with their ids as
    values.

    Args:
        part: JSON of the menu or group.
    """
    users = {user.id: user.name for user in guild.list_members()}
    roles = {guild.id: "@everyone", guild.bot_role_id: f"@{guild.bot.name}"}
    roles |= {role.id: f"@{role.name}" for role in guild.roles.by_name.values()}
    types, places = part.get("channel_types"), (c for c in guild.channels.values() if c.is_in_guild)
    own = {option["value"]: option["label"] for option in part.get("options") or ()}
    channels = {c.id: f"#{c.name}" for c in places if not types or DiscordPayloads.channel_type(c) in types}
    lists = {USER_SELECT: users, ROLE_SELECT: roles, MENTIONABLE_SELECT: users | roles, CHANNEL_SELECT: channels}
    return lists.get(part["type"], own)


def create_resolved(ids: Sequence[str], guild: Guild, payloads: DiscordPayloads) -> Json:
    """Return an object with the field `resolved` of an interaction for some ids.

    The field has the JSON of the `users`, `members`, `roles` and `channels` with these ids, by id; unknown ids are left
    out. Without ids, the returned object is empty.
    """
    users = [guild.users[id_] for id_ in ids if id_ in guild.users]
    roles = {role["id"]: role for role in payloads.guild()["roles"]}
    resolved: Json = {
        "users": {user.id: payloads.user(user) for user in users},
        "members": {user.id: _partial_member(payloads, user) for user in users},
        "roles": {id_: roles[id_] for id_ in ids if id_ in roles},
        "channels": {
            id_: payloads.channel(guild.channels[id_]) | {"permissions": payloads.bot_permissions()}
            for id_ in ids
            if id_ in guild.channels
        },
    }
    return {"resolved": {name: about for name, about in resolved.items() if about}} if ids else {}


def _partial_member(payloads: DiscordPayloads, user: DiscordUser) -> Json:
    """Return a server member's JSON as in `resolved`.

    It lacks `user`, `deaf` and `mute`, and has the member's `permissions`.
    """
    member = payloads.member(user, with_user=False) | {"permissions": payloads.user_permissions(user)}
    return {name: value for name, value in member.items() if name not in ("deaf", "mute")}
