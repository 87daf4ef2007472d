"""What can be pressed or chosen in the blocks of a message.

Slack: docs.slack.dev/reference/block-kit/block-elements.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any


@dataclass(frozen=True, slots=True)
class BlockControl:
    """One thing to press, or one option to choose.

    Attributes:
        id: what it is pressed by here: the action id of a button; of one of two feedback buttons, or of an option of a
            select, which share an action id, the value.
        label: what people read on it.
        spoken: what a screen reader says.
        element: the element that it belongs to.
        choice: of several within the element, the one.
    """

    id: str
    label: str
    accessibility_label: str
    block_id: str
    element: Mapping[str, Any]
    option: Mapping[str, Any] | None = None

    def action_payload(self) -> dict[str, Any]:
        """What the app is told of it, when it is pressed."""
        told: dict[str, Any] = {
            "type": self.element["type"],
            "action_id": self.element["action_id"],
            "block_id": self.block_id,
            "action_ts": f"{time():.6f}",
        }
        if self.element["type"] == "static_select" and self.option is not None:
            placeholder = self.element.get("placeholder")
            chosen = {"text": _plain_text(self.option["text"]), "value": self.option["value"]}
            return (
                told | {"selected_option": chosen} | ({"placeholder": _plain_text(placeholder)} if placeholder else {})
            )
        pressed = self.option or self.element
        given = {name: pressed[name] for name in ("value", "style") if name in pressed}
        return told | {"text": _plain_text(pressed["text"])} | given


def find_controls(blocks: Sequence[Mapping[str, Any]]) -> Iterator[BlockControl]:
    """All of them, in the order in which they are shown."""
    for block in blocks:
        elements = block.get("elements", ()) if block["type"] in ("actions", "context_actions") else ()
        for element in (*elements, *filter(None, [block.get("accessory")])):
            for choice in _options(element):
                pressed = choice or element
                label = pressed["text"]["text"]
                id_ = element.get("action_id", "") if choice is None else choice["value"]
                spoken = pressed.get("accessibility_label") or label
                yield BlockControl(id_, label, spoken, block.get("block_id", ""), element, choice)


def _options(element: Mapping[str, Any]) -> Sequence[Mapping[str, Any] | None]:
    match element.get("type"):
        case "button" | "icon_button":
            return [None]
        case "feedback_buttons":
            return [element["positive_button"], element["negative_button"]]
        case "static_select":
            return list(element["options"])
    return []


def _plain_text(text: Mapping[str, Any]) -> dict[str, Any]:
    return {"emoji": True, **text}
