"""States of a turn and the transitions between them."""

from collections.abc import Mapping
from typing import Literal, get_args

State = Literal["queued", "running", "answered", "done", "failed", "cancelled"]
EndState = Literal["done", "failed", "cancelled"]

#: States of turns that have ended, and of turns that have not.
ENDED_STATES: tuple[State, ...] = get_args(EndState)
ACTIVE_STATES: tuple[State, ...] = tuple(state for state in get_args(State) if state not in ENDED_STATES)

#: Allowed transitions from one state to another, each with its cause.
TRANSITIONS: Mapping[tuple[State, State], str] = {
    ("running", "answered"): "the final text is stored",
    ("answered", "done"): "the reply is confirmed",
    ("answered", "failed"): "the reply cannot be shown",
    ("answered", "cancelled"): "a reset, a stop, a deletion",
    ("running", "failed"): "an error message is shown",
    ("running", "cancelled"): "a reset, a stop, a deletion",
    ("running", "queued"): "the worker hands the turn back",
    ("queued", "running"): "another worker claims the turn",
}


def states_before(state: State) -> set[State]:
    """Return the states before `state`, and `state` itself, so that a repeated write is no error."""
    return {source for source, target in TRANSITIONS if target == state} | {state}
