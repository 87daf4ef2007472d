"""States of a turn and the transitions between them."""

from collections.abc import Mapping
from typing import Literal, get_args

State = Literal["queued", "running", "answered", "done", "failed", "cancelled"]
EndState = Literal["done", "failed", "cancelled"]

#: Of a turn: it has ended, or not.
ENDED_STATES: tuple[State, ...] = get_args(EndState)
ACTIVE_STATES: tuple[State, ...] = tuple(state for state in get_args(State) if state not in ENDED_STATES)

#: From which state to which a turn may go, and when it does.
TRANSITIONS: Mapping[tuple[State, State], str] = {
    ("running", "answered"): "the final text is kept",
    ("answered", "done"): "it is shown",
    ("answered", "failed"): "it cannot be shown",
    ("answered", "cancelled"): "a reset, a stop, a deletion",
    ("running", "failed"): "an apology is shown",
    ("running", "cancelled"): "a reset, a stop, a deletion",
    ("running", "queued"): "its worker hands it back",
    ("queued", "running"): "another one claims it",
}


def states_before(state: State) -> set[State]:
    """Return the states from which a turn may go to a state, and that state itself.

    A repeated write is then no error.
    """
    return {source for source, target in TRANSITIONS if target == state} | {state}
