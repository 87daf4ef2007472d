"""The buttons under a reply: what is written on each, and what a press of it is known by."""

from collections.abc import Collection, Mapping
from typing import Literal

from channels.base import Button, ButtonStyle
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.settings import Extra

#: What a press asks for: of a turn, of what it was made of, and of a request.
OfTurn = Literal["retry", "regenerate", "revise", "stop", "good", "bad"]
OfReceipt = Literal["why"]
OfRequest = Literal["approve", "always", "deny"]
Wish = OfTurn | OfReceipt | OfRequest

_LABELS: Mapping[Wish, str] = {
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
_STYLES: Mapping[Wish, ButtonStyle] = {"revise": "primary", "approve": "primary", "deny": "danger"}


def button(wish: Wish, turn_id: str, say: Words) -> Button:
    """A button.

    Args:
        turn_id: of what it concerns: a turn, or a request.
    """
    return Button(f"{wish}:{turn_id}", say(_LABELS[wish]), _STYLES.get(wish, ""))


def growing(turn_id: str, say: Words, *, is_revised: bool = False) -> list[Button]:
    """The buttons under a reply that grows.

    Args:
        is_revised: whether what it answers was edited since.
    """
    wishes: list[Wish] = ["revise", "stop"] if is_revised else ["stop"]
    return [button(wish, turn_id, say) for wish in wishes]


def under_answer(turn_id: str, say: Words, extras: Collection[Extra], *, is_revised: bool = False) -> list[Button]:
    """The buttons under an answer that has come to its end.

    Args:
        is_revised: whether what it answers was edited since; then that is answered, and not the same once more.
    """
    wishes: list[Wish] = ["revise"] if is_revised else ["regenerate"] if "regenerate" in extras else []
    if "why" in extras:
        wishes += ["why"]
    if "feedback" in extras:
        wishes += ["good", "bad"]
    return [button(wish, turn_id, say) for wish in wishes]


def under_request(approval_id: str, say: Words, *, may_always: bool) -> list[Button]:
    """The buttons under a request that waits for a decision."""
    wishes: list[Wish] = ["approve", "always", "deny"] if may_always else ["approve", "deny"]
    return [button(wish, approval_id, say) for wish in wishes]


def wished(button_id: str) -> tuple[Wish, str] | None:
    """What a press asks for, and of which turn or request; nothing if the button is none of these."""
    name, _, turn_id = button_id.partition(":")
    wish = next((wish for wish in _LABELS if wish == name), None)
    return (wish, turn_id) if wish and turn_id else None
