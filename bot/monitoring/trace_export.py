"""Traces: sent to where OpenTelemetry's own variables say, if they say so; else no SDK is loaded.

opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables. What leaves the process has no text of people
or models, unless ADK's own variables ask for it: those of its spans that may hold some are told not to.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from core.observability.tracing import hash_id
from core.secret_redaction import redact_secrets

if TYPE_CHECKING:  # it is loaded only where traces are sent
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.util.types import Attributes, AttributeValue

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

#: ADK: whether its spans hold what was said. It is on where nothing is said of it.
CAPTURE = "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS"

#: Ids of people and places in ADK's spans: what is sent are others, the same each time.
_IDS = ("gen_ai.conversation.id", "gcp.vertex.agent.session_id", "user.id", "gcp.vertex.agent.user_id")

#: What an exception says of itself may quote anybody; its kind and where it was raised do not.
_TEXTS = ("exception.message", "exception.stacktrace")


def are_wanted(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return environment.get("OTEL_TRACES_EXPORTER") == "otlp" or any(environment.get(name) for name in _ENDPOINTS)


@asynccontextmanager
async def sent() -> AsyncIterator[None]:
    """Send traces for as long as this is entered, if they are wanted."""
    os.environ.setdefault(CAPTURE, "false")
    if not are_wanted(os.environ):
        yield
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415 - loaded only where traces are wanted, as all of these
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult  # noqa: PLC0415
    except ImportError:
        log.warning("OTEL_EXPORTER_OTLP_ENDPOINT: no traces are sent without the extra otel: `uv sync --extra otel`")
        yield
        return

    class Discreet(OTLPSpanExporter):
        """Sends nothing that is not to be known."""

        def export(self, spans: "Sequence[ReadableSpan]") -> SpanExportResult:
            return super().export([_discreet(span) for span in spans])

    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "parley")}))
    provider.add_span_processor(BatchSpanProcessor(Discreet()))
    trace.set_tracer_provider(provider)
    log.info("traces are sent")
    try:
        yield
    finally:
        await asyncio.to_thread(provider.shutdown)


def _discreet(span: "ReadableSpan") -> "ReadableSpan":
    from opentelemetry.sdk.trace import Event, ReadableSpan  # noqa: PLC0415 - it is loaded by now
    from opentelemetry.trace import Status  # noqa: PLC0415

    kept = os.environ[CAPTURE].strip().lower() not in ("0", "false")

    def told(attributes: "Attributes") -> "Attributes":
        found = (attributes or {}).items()
        return {name: _told(name, value) for name, value in found if kept or name not in _TEXTS}

    events = [Event(event.name, told(event.attributes), event.timestamp) for event in span.events]
    is_own = span.instrumentation_scope is not None and span.instrumentation_scope.name == "parley"
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=told(span.attributes),
        events=events,
        links=span.links,
        kind=span.kind,
        status=span.status if is_own or kept else Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _told(name: str, value: "AttributeValue") -> "AttributeValue":
    if not isinstance(value, str):
        return value
    return hash_id(value) if name in _IDS else redact_secrets(value)
