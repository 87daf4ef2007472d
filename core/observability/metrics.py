"""Metrics of the OpenTelemetry API, which cost nothing without a collector.

Attributes of a metric have few values: never a user, a place or a text.

OpenTelemetry: opentelemetry.io/docs/specs/semconv/general/naming. Prometheus has these names with underscores and with
their unit: `parley.reply.delay` is `parley_reply_delay_seconds`.
"""

from opentelemetry import metrics

_SECONDS_BOUNDARIES = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0]
_LAG_BOUNDARIES = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0]

_meter = metrics.get_meter("parley")

#: By `platform`, `kind` and `state`: the turn's final state, or "handed back" if any worker may claim the turn again.
ended_turns = _meter.create_counter("parley.turns", unit="{turn}", description="Turns that ended in this process")

#: By `platform` and `stage`: "placeholder", "first_text" or "final".
reply_delays = _meter.create_histogram(
    "parley.reply.delay",
    unit="s",
    description="Time from a message to this stage of its reply",
    explicit_bucket_boundaries_advisory=_SECONDS_BOUNDARIES,
)

#: By `platform`, `method` and `outcome`: "ok", "limited" (too many calls), "refused", or "failed" (transient).
platform_calls = _meter.create_counter(
    "parley.platform.calls", unit="{call}", description="Calls of the platforms' APIs"
)

#: By `model` and `outcome`: "ok", or the name of the error.
model_calls = _meter.create_counter("parley.model.calls", unit="{call}", description="Calls of models")

#: By `model` and `kind`: "input" (with "cached" and "cache_write"), "output" (without "thinking").
tokens = _meter.create_counter("parley.model.tokens", unit="{token}", description="Tokens read and written by models")

#: By `model`.
cost = _meter.create_counter("parley.model.cost", unit="{dollar}", description="Cost of model calls in US dollars")

#: By `kind`: the name of the error in the database or its driver.
database_errors = _meter.create_counter(
    "parley.database.errors", unit="{error}", description="Statements that failed because of the database"
)

loop_lag = _meter.create_histogram(
    "parley.loop.lag",
    unit="s",
    description="Delay of due callbacks in the event loop",
    explicit_bucket_boundaries_advisory=_LAG_BOUNDARIES,
)

readiness = _meter.create_gauge("parley.ready", description="1 if messages are received and stored, else 0")
running_turns = _meter.create_gauge(
    "parley.turns.running", unit="{turn}", description="Turns that are running in this process"
)

#: Over all workers on the database.
waiting_messages = _meter.create_gauge("parley.messages.waiting", unit="{message}", description="Messages that wait")
oldest_message_age = _meter.create_gauge(
    "parley.messages.waiting.age", unit="s", description="Wait of the oldest message whose session has no running turn"
)

#: By `platform`: the headroom of the limit that is used most.
limit_headroom = _meter.create_gauge(
    "parley.platform.limit.headroom", unit="1", description="Unused fraction of the platform's most used rate limit"
)


def record_model_call(model: str, error: str, **used: int) -> None:
    """Add a model call and its tokens to the metrics.

    Args:
        error: class name of the error; empty on success.
        used: number of tokens by kind: `input` (with `cached` and `cache_write`), `output`, `thinking`, `cached`,
            `cache_write`.
    """
    model_calls.add(1, {"model": model, "outcome": error or "ok"})
    for kind, count in used.items():
        if count:
            tokens.add(count, {"model": model, "kind": kind})
