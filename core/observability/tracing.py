"""Tracing: the current turn, for log lines and for OpenTelemetry.

One span is one turn (`parley.turn`); ADK's own spans are inside it. Without a collector there are no spans.
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
    """Identity of a running turn: its id, its session's id, the platform, and its kind."""

    turn: str
    session: str
    channel: str
    kind: str


_current: ContextVar[TurnContext | None] = ContextVar("run", default=None)


def get_current_turn() -> TurnContext | None:
    """Return the turn of the current task, if there is one."""
    return _current.get()


def get_trace_id() -> str:
    """Return the current trace id; empty outside of a trace."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


@contextmanager
def trace_turn(turn: str, session: str, channel: str, kind: str) -> Iterator[None]:
    """Set the turn of the current task and of the tasks that it starts."""
    attributes = {
        "parley.turn.id": turn,
        "parley.session": hash_id(session),
        "parley.channel": channel,
        "parley.kind": kind,
    }
    token = _current.set(TurnContext(turn, session, channel, kind))
    try:
        with _tracer.start_as_current_span(
            "parley.turn", attributes=attributes, record_exception=False, set_status_on_exception=False
        ):
            yield
    finally:
        _current.reset(token)


def record_turn_end(state: str, error: str | None = None) -> None:
    """Count the end of the current turn, and record it in the span.

    Args:
        error: error without secrets and user texts; only the part before its first colon is exported.
    """
    if (run := get_current_turn()) is not None:
        metrics.ended_turns.add(1, {"channel": run.channel, "kind": run.kind, "state": state})
    span = trace.get_current_span()
    span.set_attribute("parley.outcome", state)
    if error is not None and state == "failed":
        span.set_status(trace.StatusCode.ERROR, error.partition(":")[0])


def hash_id(name: str) -> str:
    """Return a stable hash of an id that must not leave the machine."""
    return blake2b(name.encode(), digest_size=8).hexdigest()
