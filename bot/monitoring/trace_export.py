"""Export of traces by OTLP, configured by OpenTelemetry's environment variables.

Without these variables, OpenTelemetry's SDK is not imported:
opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables. Exported spans contain no text of users or
models, unless ADK's variable `ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS` enables it.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from core.observability.secret_redaction import redact_secrets
from core.observability.tracing import hash_id

if TYPE_CHECKING:  # the SDK is an extra
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.util.types import Attributes, AttributeValue

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

#: ADK's variable that adds message text to its spans; its default is on.
CAPTURE_VARIABLE = "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS"

#: Ids of users and sessions in ADK's spans; they are exported as hashes.
_HASHED_ATTRIBUTES = ("gen_ai.conversation.id", "gcp.vertex.agent.session_id", "user.id", "gcp.vertex.agent.user_id")

#: Texts of an exception may quote users; its type does not.
_DROPPED_ATTRIBUTES = ("exception.message", "exception.stacktrace")


def is_tracing_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's environment variables enable traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return environment.get("OTEL_TRACES_EXPORTER") == "otlp" or any(environment.get(name) for name in _ENDPOINTS)


@asynccontextmanager
async def export_traces() -> AsyncIterator[None]:
    """Export the spans of the block, if OpenTelemetry's variables enable it.

    The end of the block waits until the last spans are exported. If the SDK is not installed, a warning is logged and
    nothing is exported. In any case, the environment variable that `CAPTURE_VARIABLE` names is set to `false` if it is
    unset.
    """
    os.environ.setdefault(CAPTURE_VARIABLE, "false")
    if not is_tracing_enabled(os.environ):
        yield
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra, as all of these
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult  # noqa: PLC0415
    except ImportError:
        log.warning('OTEL_EXPORTER_OTLP_ENDPOINT: traces need the extra otel: `uv add "parley[otel]"`')
        yield
        return

    class RedactingExporter(OTLPSpanExporter):
        """OTLP exporter that redacts secrets and user data in each span.

        Ids of users and sessions become hashes. Texts of exceptions are removed, unless the environment variable that
        `CAPTURE_VARIABLE` names allows message text.
        """

        def export(self, spans: "Sequence[ReadableSpan]") -> SpanExportResult:
            return super().export([_redact_span(span) for span in spans])

    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "parley")}))
    provider.add_span_processor(BatchSpanProcessor(RedactingExporter()))
    trace.set_tracer_provider(provider)
    log.info("exporting traces")
    try:
        yield
    finally:
        await asyncio.to_thread(provider.shutdown)


def _redact_span(span: "ReadableSpan") -> "ReadableSpan":
    from opentelemetry.sdk.trace import Event, ReadableSpan  # noqa: PLC0415 - an extra
    from opentelemetry.trace import Status  # noqa: PLC0415

    has_text = os.environ[CAPTURE_VARIABLE].strip().lower() not in ("0", "false")

    def redact_all(attributes: "Attributes") -> "Attributes":
        items = (attributes or {}).items()
        return {
            name: _redact_value(name, value) for name, value in items if has_text or name not in _DROPPED_ATTRIBUTES
        }

    events = [Event(event.name, redact_all(event.attributes), event.timestamp) for event in span.events]
    is_own = span.instrumentation_scope is not None and span.instrumentation_scope.name == "parley"
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=redact_all(span.attributes),
        events=events,
        links=span.links,
        kind=span.kind,
        status=span.status if is_own or has_text else Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _redact_value(name: str, value: "AttributeValue") -> "AttributeValue":
    if not isinstance(value, str):
        return value
    return hash_id(value) if name in _HASHED_ATTRIBUTES else redact_secrets(value)
