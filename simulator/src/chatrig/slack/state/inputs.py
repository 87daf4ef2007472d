"""Input elements of Block Kit, and the values that users entered into them.

Slack: docs.slack.dev/reference/block-kit/block-elements and docs.slack.dev/reference/interaction-payloads. The `state`
of a view or message has a value for each input element, entered or not.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from chatrig.slack.state.markup import create_block_id

Json = dict[str, Any]

#: Input elements: the field of their value in `state` and `actions`, and the field of their preset value.
INPUT_FIELDS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("plain_text_input", "email_text_input", "url_text_input", "number_input"), ("value", "initial_value")
    ),
    "rich_text_input": ("rich_text_value", "initial_value"),
    **dict.fromkeys(("static_select", "external_select", "radio_buttons"), ("selected_option", "initial_option")),
    **dict.fromkeys(
        ("multi_static_select", "multi_external_select", "checkboxes"), ("selected_options", "initial_options")
    ),
    "users_select": ("selected_user", "initial_user"),
    "multi_users_select": ("selected_users", "initial_users"),
    "conversations_select": ("selected_conversation", "initial_conversation"),
    "multi_conversations_select": ("selected_conversations", "initial_conversations"),
    "channels_select": ("selected_channel", "initial_channel"),
    "multi_channels_select": ("selected_channels", "initial_channels"),
    "datepicker": ("selected_date", "initial_date"),
    "timepicker": ("selected_time", "initial_time"),
    "datetimepicker": ("selected_date_time", "initial_date_time"),
    "file_input": ("files", ""),
}
#: Elements with several values, or none.
LIST_INPUTS = frozenset(kind for kind in INPUT_FIELDS if kind.startswith("multi_")) | {"checkboxes", "file_input"}


@dataclass(slots=True)
class InputState:
    """Values that one user entered into the input elements of a message or view.

    The preset value of an element counts until the user replaces it.
    """

    _values: dict[tuple[str, str, str], Any] = field(default_factory=dict)

    def set_value(self, block_id: str, element: Mapping[str, Any], value: Any) -> None:
        """Store the value that the user entered into an element.

        Args:
            value: the value as in payloads (see `parse_input`); None or [] if the user cleared the element.
        """
        self._values[block_id, element["action_id"], element["type"]] = value

    def get_value(self, block_id: str, element: Mapping[str, Any]) -> Any:
        """Return the value that the user entered into an element, else its preset value.

        Returns:
            The value as in payloads (see `parse_input`). Without one, None, or an empty list for an element with
            several values.
        """
        kind = element["type"]
        preset = element.get(INPUT_FIELDS[kind][1])
        if preset is None:
            preset = [] if kind in LIST_INPUTS else None
        return self._values.get((block_id, element.get("action_id", ""), kind), preset)

    def to_payload(self, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
        """Return the `state.values` of a payload.

        It has the values of all input elements in the blocks, by block id and action id: entered, preset or blank.
        """
        values: dict[str, Json] = {}
        for block, element in find_elements(blocks):
            if (kind := element["type"]) in INPUT_FIELDS:
                value = self.get_value(block["block_id"], element)
                values.setdefault(block["block_id"], {})[element["action_id"]] = {
                    "type": kind,
                    INPUT_FIELDS[kind][0]: value,
                }
        return values


def find_elements(blocks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Json]]:
    """Yield the pair (block, element) for each Block Kit element in blocks.

    The elements are accessories, and those of `actions`, `context_actions` and `input` blocks.
    """
    for block in blocks:
        elements = block.get("elements", ()) if block["type"] in ("actions", "context_actions") else ()
        for element in (*elements, *filter(None, [block.get("accessory"), block.get("element")])):
            yield block, element


def list_options(element: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the options of a Block Kit element, with those of its option groups."""
    groups = element.get("option_groups") or ()
    return [*(element.get("options") or ()), *(option for group in groups for option in group["options"])]


def assign_block_ids(blocks: Sequence[Mapping[str, Any]], seed: str) -> list[Json]:
    """Return a copy of blocks in which each block and interactive element has an id.

    Missing values of `block_id` and `action_id` are created; existing ones stay.

    Args:
        seed: the same seed and blocks always have the same ids.
    """
    copied: list[Json] = deepcopy(list(map(dict, blocks)))
    for index, block in enumerate(copied):
        block["block_id"] = block.get("block_id") or create_block_id(f"{seed}/{index}")
    for number, (_, element) in enumerate(find_elements(copied)):
        if "action_id" not in element and element["type"] != "image":
            element["action_id"] = create_block_id(f"{seed}/element/{number}")
    return copied
