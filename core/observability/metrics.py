"""Metrics of the OpenTelemetry API, which cost nothing without a collector.

Labels have few values: never a user, a place or a text.

OpenTelemetry: opentelemetry.io/docs/specs/semconv/general/naming. Prometheus has these names with underscores and with
their unit: `parley.reply.delay` is `parley_reply_delay_seconds`.
"""

from opentelemetry import metrics

_SECONDS_BOUNDARIES = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0]
_LAG_BOUNDARIES = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0]

_meter = metrics.get_meter("parley")

#: By `channel`, `kind` and `state`: the final state, or "handed back".
ended_turns = _meter.create_counter("parley.turns", unit="{turn}", description="Turns that have ended here")

#: By `channel` and `until`: "placeholder", "first_word" or "final".
reply_delays = _meter.create_histogram(
    "parley.reply.delay",
    unit="s",
    description="From when a message was sent until its reply shows this",
    explicit_bucket_boundaries_advisory=_SECONDS_BOUNDARIES,
)

#: By `channel`, `method` and `outcome`: "ok", "limited" (too many calls), "refused", or "failed" (transient).
platform_calls = _meter.create_counter(
    "parley.platform.calls", unit="{call}", description="Calls of the platforms' APIs"
)

#: By `model` and `outcome`: "ok", or the name of the error.
model_calls = _meter.create_counter("parley.model.calls", unit="{call}", description="Calls of models")

#: By `model` and `kind`: "input" (with "cached" and "cache_write"), "output" (without "thinking").
tokens = _meter.create_counter("parley.model.tokens", unit="{token}", description="Tokens read and written by models")

#: By `model`.
cost = _meter.create_counter("parley.model.cost", unit="{dollar}", description="Dollars that calls of models came to")

#: By `kind`: the name of the error in the database or its driver.
database_errors = _meter.create_counter(
    "parley.database.errors", unit="{error}", description="Statements that failed for the database's sake"
)

loop_lag = _meter.create_histogram(
    "parley.loop.lag",
    unit="s",
    description="How late the event loop comes to what is due",
    explicit_bucket_boundaries_advisory=_LAG_BOUNDARIES,
)

readiness = _meter.create_gauge("parley.ready", description="1 if what is said is heard and kept, else 0")
running_turns = _meter.create_gauge("parley.turns.running", unit="{turn}", description="Turns that run here")

#: Of all workers on the database.
waiting_messages = _meter.create_gauge("parley.messages.waiting", unit="{message}", description="Messages that wait")
oldest_message_age = _meter.create_gauge(
    "parley.messages.waiting.age", unit="s", description="How long the oldest waits in whose session nothing runs"
)

#: By `channel`: of the limit with the least left.
budget_left = _meter.create_gauge(
    "parley.platform.budget.left", unit="1", description="The part of a platform's limit that is left"
)


def count_model_call(model: str, error: str, **used: int) -> None:
    """Count a model call and its tokens in the metrics.

    Args:
        model: full name of the model.
        error: class name of the error; empty on success.
        used: tokens by kind.
    """
    model_calls.add(1, {"model": model, "outcome": error or "ok"})
    for kind, count in used.items():
        if count:
            tokens.add(count, {"model": model, "kind": kind})
