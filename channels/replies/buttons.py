"""Buttons under replies: their labels, styles and ids."""

from collections.abc import Collection, Mapping
from typing import Literal

from channels.base import Button, ButtonStyle
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.settings import ExtraButton

#: The actions of buttons: on a turn, and on an approval.
TurnAction = Literal["retry", "regenerate", "revise", "stop", "good", "bad"]
ApprovalAction = Literal["approve", "always", "deny"]
ButtonAction = TurnAction | ApprovalAction

#: Prefixes of the ids of the ratings.
RATING_PREFIXES = ("good:", "bad:")

_LABELS: Mapping[ButtonAction, str] = {
    "retry": words.RETRY,
    "regenerate": words.REGENERATE,
    "revise": words.ANSWER_EDITED,
    "stop": words.STOP,
    "good": words.GOOD_ANSWER,
    "bad": words.BAD_ANSWER,
    "approve": words.APPROVE,
    "always": words.ALWAYS_ALLOW,
    "deny": words.DENY,
}
_STYLES: Mapping[ButtonAction, ButtonStyle] = {"revise": "primary", "approve": "primary", "deny": "danger"}


def create_button(action: ButtonAction, target_id: str, say: MessageCatalog) -> Button:
    """Return the button for an action.

    Args:
        target_id: the id of the turn or the approval.
    """
    return Button(f"{action}:{target_id}", say(_LABELS[action]), _STYLES.get(action, ""))


def growing_buttons(turn_id: str, say: MessageCatalog, *, is_revised: bool = False) -> list[Button]:
    """Return the buttons under a growing reply.

    Args:
        is_revised: whether a message of the turn was edited since.
    """
    actions: list[ButtonAction] = ["revise", "stop"] if is_revised else ["stop"]
    return [create_button(action, turn_id, say) for action in actions]


def answer_buttons(
    turn_id: str, say: MessageCatalog, extras: Collection[ExtraButton], *, is_revised: bool = False
) -> list[Button]:
    """Return the buttons under a finished answer: the new answer first, then the ratings.

    Args:
        is_revised: whether a message of the turn was edited since; then the answer to the edit replaces *Regenerate*.
    """
    actions: list[ButtonAction] = ["revise"] if is_revised else ["regenerate"] if "regenerate" in extras else []
    if "feedback" in extras:
        actions += ["good", "bad"]
    return [create_button(action, turn_id, say) for action in actions]


def approval_buttons(approval_id: str, say: MessageCatalog, *, may_always: bool) -> list[Button]:
    """Return the buttons under an undecided approval."""
    actions: list[ButtonAction] = ["approve", "always", "deny"] if may_always else ["approve", "deny"]
    return [create_button(action, approval_id, say) for action in actions]


def parse_button(button_id: str) -> tuple[ButtonAction, str] | None:
    """Return the action of a button and the id of its turn or approval; None for a foreign button."""
    name, _, turn_id = button_id.partition(":")
    action = next((action for action in _LABELS if action == name), None)
    return (action, turn_id) if action and turn_id else None
