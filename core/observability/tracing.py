"""Tracing: which turn the process is at, for the lines of its log and for OpenTelemetry.

One span is one turn (`parley.turn`); ADK's own spans are inside it. Where nothing collects spans, none is made.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import NamedTuple

from opentelemetry import trace

from core.observability import metrics

_tracer = trace.get_tracer("parley")


class TurnContext(NamedTuple):
    """A turn that runs: its id, its session's, the platform's name, and its kind."""

    turn: str
    session: str
    channel: str
    kind: str


_current: ContextVar[TurnContext | None] = ContextVar("run", default=None)


def get_current_turn() -> TurnContext | None:
    """The turn that this is done for."""
    return _current.get()


def get_trace_id() -> str:
    """Of the trace that this is done in; empty outside of one."""
    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


@contextmanager
def trace_turn(turn: str, session: str, channel: str, kind: str) -> Iterator[None]:
    """Say that all that is done from here on, also by the tasks that are begun here, is done for a turn."""
    about = {"parley.turn.id": turn, "parley.session": hash_id(session), "parley.channel": channel, "parley.kind": kind}
    token = _current.set(TurnContext(turn, session, channel, kind))
    try:
        with _tracer.start_as_current_span(
            "parley.turn", attributes=about, record_exception=False, set_status_on_exception=False
        ):
            yield
    finally:
        _current.reset(token)


def record_turn_end(state: str, error: str | None = None) -> None:
    """Say what has become of the turn that this is done for.

    Args:
        error: free of secrets and of what was said; what is behind its first colon stays here.
    """
    if (run := get_current_turn()) is not None:
        metrics.ended_turns.add(1, {"channel": run.channel, "kind": run.kind, "state": state})
    span = trace.get_current_span()
    span.set_attribute("parley.outcome", state)
    if error is not None and state == "failed":
        span.set_status(trace.StatusCode.ERROR, error.partition(":")[0])


def hash_id(name: str) -> str:
    """What an id is called that is not to leave the machine: the same each time."""
    return blake2b(name.encode(), digest_size=8).hexdigest()
