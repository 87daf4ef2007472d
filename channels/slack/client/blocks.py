"""A message as Slack's blocks: its text, and what is to be pressed below it.

Slack: docs.slack.dev/reference/block-kit. An update with blocks shows no "(edited)" beside the message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from channels.base import Button
from channels.slack.text import escaped

#: The most of a message's plain text that goes into its notification, in characters.
NOTICE_SIZE = 3_000

#: Slack: what may be on a button, in characters.
LABEL_SIZE = 75

#: The two that stand together as one element: what is pressed of it, its value tells.
_GOOD, _BAD = "good:", "bad:"
_FEEDBACK = "feedback:"


def content(text: str, controls: Sequence[Button] = ()) -> dict[str, Any]:
    """Markdown for those who read it, and plain text for notifications."""
    notice = escaped(text.replace("&lt;", "<"))
    return {
        "blocks": [{"type": "markdown", "text": text}, *below(controls)],
        "text": notice if len(notice) <= NOTICE_SIZE else f"{notice[:NOTICE_SIZE]}…",
    }


def below(controls: Sequence[Button]) -> list[dict[str, Any]]:
    """The blocks of the buttons. Whether an answer was good is asked in Slack's own way.

    Slack: the one icon that an `icon_button` may have is a bin, so that all others are ordinary ones.
    """
    verdicts = {name: c for c in controls for name in (_GOOD, _BAD) if c.id.startswith(name)}
    rated = list(verdicts.values()) if len(verdicts) == 2 else []
    pressed = [control for control in controls if control not in rated]
    blocks: list[dict[str, Any]] = []
    if pressed:
        blocks.append({"type": "actions", "elements": [button(control) for control in pressed]})
    if rated:
        good, bad = verdicts[_GOOD], verdicts[_BAD]
        feedback = {
            "type": "feedback_buttons",
            "action_id": f"{_FEEDBACK}{good.id.removeprefix(_GOOD)}",
            "positive_button": {**_labelled(good.label), "value": good.id},
            "negative_button": {**_labelled(bad.label), "value": bad.id},
        }
        blocks.append({"type": "context_actions", "elements": [feedback]})
    return blocks


def button(control: Button) -> dict[str, Any]:
    styled = {"style": control.style} if control.style else {}
    return {"type": "button", "action_id": control.id, **_labelled(control.label), **styled}


def pressed(action: Mapping[str, Any]) -> str:
    """The id of the button that was pressed, out of what Slack tells of it."""
    id_ = str(action.get("action_id"))
    return str(action.get("value")) if id_.startswith(_FEEDBACK) else id_


def _labelled(label: str) -> dict[str, Any]:
    return {"text": {"type": "plain_text", "text": label[:LABEL_SIZE]}, "accessibility_label": label[:LABEL_SIZE]}
