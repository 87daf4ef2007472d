"""The buttons under a reply: what is written on each, and what a press of it is known by."""

from collections.abc import Collection, Mapping
from typing import Literal

from channels.base import Button, ButtonStyle
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.settings import ExtraButton

#: What a press asks for: of a turn, of what it was made of, and of a request.
TurnAction = Literal["retry", "regenerate", "revise", "stop", "good", "bad"]
ReportAction = Literal["why"]
ApprovalAction = Literal["approve", "always", "deny"]
ButtonAction = TurnAction | ReportAction | ApprovalAction

_LABELS: Mapping[ButtonAction, str] = {
    "retry": words.RETRY,
    "regenerate": words.REGENERATE,
    "revise": words.REVISE,
    "stop": words.STOP,
    "good": words.GOOD,
    "bad": words.BAD,
    "why": words.WHY,
    "approve": words.APPROVE,
    "always": words.ALWAYS,
    "deny": words.DENY,
}
_STYLES: Mapping[ButtonAction, ButtonStyle] = {"revise": "primary", "approve": "primary", "deny": "danger"}


def create_button(action: ButtonAction, target_id: str, say: MessageCatalog) -> Button:
    """A button.

    Args:
        turn_id: of what it concerns: a turn, or a request.
    """
    return Button(f"{action}:{target_id}", say(_LABELS[action]), _STYLES.get(action, ""))


def growing_buttons(turn_id: str, say: MessageCatalog, *, is_revised: bool = False) -> list[Button]:
    """The buttons under a reply that grows.

    Args:
        is_revised: whether what it answers was edited since.
    """
    wishes: list[ButtonAction] = ["revise", "stop"] if is_revised else ["stop"]
    return [create_button(wish, turn_id, say) for wish in wishes]


def answer_buttons(
    turn_id: str, say: MessageCatalog, extras: Collection[ExtraButton], *, is_revised: bool = False
) -> list[Button]:
    """The buttons under an answer that has come to its end.

    Args:
        is_revised: whether what it answers was edited since; then that is answered, and not the same once more.
    """
    wishes: list[ButtonAction] = ["revise"] if is_revised else ["regenerate"] if "regenerate" in extras else []
    if "why" in extras:
        wishes += ["why"]
    if "feedback" in extras:
        wishes += ["good", "bad"]
    return [create_button(wish, turn_id, say) for wish in wishes]


def approval_buttons(approval_id: str, say: MessageCatalog, *, may_always: bool) -> list[Button]:
    """The buttons under a request that waits for a decision."""
    wishes: list[ButtonAction] = ["approve", "always", "deny"] if may_always else ["approve", "deny"]
    return [create_button(wish, approval_id, say) for wish in wishes]


def parse_button(button_id: str) -> tuple[ButtonAction, str] | None:
    """What a press asks for, and of which turn or request; nothing if the button is none of these."""
    name, _, turn_id = button_id.partition(":")
    wish = next((wish for wish in _LABELS if wish == name), None)
    return (wish, turn_id) if wish and turn_id else None
