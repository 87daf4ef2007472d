"""Tracing: the current turn, for log lines and for OpenTelemetry.

One span is one turn (`parley.turn`); ADK's own spans are its children. Without a collector there are no spans.
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
    """The turn that an asyncio task runs, for log lines, with the platform adapter's name and `Turn.kind`."""

    turn: str
    session: str
    platform: str
    kind: str


_current: ContextVar[TurnContext | None] = ContextVar("run", default=None)


def get_current_turn() -> TurnContext | None:
    return _current.get()


def get_trace_id() -> str:
    """Return OpenTelemetry's current trace id in hexadecimal; empty without a trace."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


@contextmanager
def trace_turn(turn: str, session: str, platform: str, kind: str) -> Iterator[None]:
    """Open the OpenTelemetry span of a turn, and set the current turn for the block.

    Tasks that start in the block have the same current turn.
    """
    attributes = {
        "parley.turn.id": turn,
        "parley.session": hash_id(session),
        "parley.platform": platform,
        "parley.kind": kind,
    }
    token = _current.set(TurnContext(turn, session, platform, kind))
    try:
        with _tracer.start_as_current_span(
            "parley.turn", attributes=attributes, record_exception=False, set_status_on_exception=False
        ):
            yield
    finally:
        _current.reset(token)


def record_turn_end(state: str, error: str | None = None) -> None:
    """Record the end of the current turn in the metrics and in the turn's span.

    Args:
        state: the end state of the turn, or `handed back` if it was released, so that any worker may claim it.
        error: error without secrets and user texts. Only for the state `failed`, the part before its first colon is
            exported.
    """
    if (run := get_current_turn()) is not None:
        metrics.ended_turns.add(1, {"platform": run.platform, "kind": run.kind, "state": state})
    span = trace.get_current_span()
    span.set_attribute("parley.outcome", state)
    if error is not None and state == "failed":
        span.set_status(trace.StatusCode.ERROR, error.partition(":")[0])


def hash_id(name: str) -> str:
    """Return a stable hash of an id that must not leave the machine, of 16 hexadecimal digits."""
    return blake2b(name.encode(), digest_size=8).hexdigest()
