"""Buttons and menu options in the blocks of a message.

Slack: docs.slack.dev/reference/block-kit/block-elements.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from chatrig.slack.state.inputs import find_elements, list_options


@dataclass(frozen=True, slots=True)
class BlockControl:
    """Button, feedback button, or option of a menu in a block.

    Attributes:
        id: the action id of a button; the value of a feedback button or an option, which share an action id.
        label: the text of the button or option.
        accessibility_label: the text for screen readers; `label` if the app set none.
        block_id: the id of the block.
        element: the Block Kit element.
        option: the feedback button or option within the element; None for a button.
    """

    id: str
    label: str
    accessibility_label: str
    block_id: str
    element: Mapping[str, Any]
    option: Mapping[str, Any] | None = None

    def action_payload(self) -> dict[str, Any]:
        """Return the item of a payload's `actions` for a click, as JSON.

        It has the fields of `create_action`. An option of an overflow menu adds `selected_option`. Any other control
        adds `text`, and `value` and `style` if it has them.
        """
        payload = create_action(self.element, self.block_id)
        if self.element["type"] == "overflow" and self.option is not None:
            return payload | {"selected_option": {**self.option, "text": _plain_text(self.option["text"])}}
        target = self.option or self.element
        fields = {name: target[name] for name in ("value", "style") if name in target}
        return payload | {"text": _plain_text(target["text"])} | fields


def create_action(element: Mapping[str, Any], block_id: str) -> dict[str, Any]:
    """Return the fields that an item of a payload's `actions` has for any element.

    They are `type`, `action_id`, `block_id`, `action_ts` (now) and, if the element has one, `placeholder`.
    """
    placeholder = element.get("placeholder")
    return {
        "type": element["type"],
        "action_id": element["action_id"],
        "block_id": block_id,
        "action_ts": f"{time():.6f}",
        **({"placeholder": _plain_text(placeholder)} if placeholder else {}),
    }


def find_controls(blocks: Sequence[Mapping[str, Any]]) -> Iterator[BlockControl]:
    """Yield the buttons and the options of menus in blocks, in order.

    The menus are `static_select`, `radio_buttons` and `overflow`; other ones have no controls.
    """
    for block, element in find_elements(blocks):
        for choice in _options(element):
            target = choice or element
            label = target["text"]["text"]
            id_ = element.get("action_id", "") if choice is None else choice["value"]
            accessibility_label = target.get("accessibility_label") or label
            yield BlockControl(id_, label, accessibility_label, block.get("block_id", ""), element, choice)


def _options(element: Mapping[str, Any]) -> Sequence[Mapping[str, Any] | None]:
    """Return the options of a menu or the two feedback buttons; [None] for a button.

    The list is empty for any other element.
    """
    match element.get("type"):
        case "button" | "icon_button":
            return [None]
        case "feedback_buttons":
            return [element["positive_button"], element["negative_button"]]
        case "static_select" | "radio_buttons" | "overflow":
            return list(list_options(element))
    return []


def _plain_text(text: Mapping[str, Any]) -> dict[str, Any]:
    return {"emoji": True, **text}
