"""Prometheus endpoint `/metrics`: metrics of Parley and of the process.

It imports OpenTelemetry's SDK, so it is imported only with METRICS=1. ADK's own metrics are dropped: some have a label
per session.
"""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import cache
from ipaddress import IPv6Address, ip_address

from aiohttp import web
from opentelemetry import metrics as api
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.view import DropAggregation, View
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from bot.monitoring.health import HealthMonitor
from channels.platform import Platform
from core.concurrency.tasks import run_in_background
from core.conversations.overview import get_queue_overview
from core.errors import StoreError
from core.observability import metrics
from core.observability.secret_redaction import format_error
from core.store.database import Database
from core.turns.worker import Worker

log = logging.getLogger(__name__)

METRICS_PATH = "/metrics"

#: Seconds between two measurements of the event loop's lag.
LAG_SECONDS = 0.5

#: Timeout of the query for queued messages; the other metrics do not need it.
DATABASE_TIMEOUT_SECONDS = 2.0

#: Headers that proxies add: the client is another machine, whatever address the request comes from.
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via", "CF-Connecting-IP")


class MetricsEndpoint:
    """Handler of `GET /metrics`.

    Args:
        token: bearer token that clients must send, else they get 401. If it is empty, clients on other machines, and
            those behind a proxy, get 403.
    """

    def __init__(self, health: HealthMonitor, token: str = "") -> None:
        self._registry = _make_registry()
        self._health = health
        self._token = token
        self._parts: tuple[Collection[Platform], Worker, Database] | None = None

    @property
    def routes(self) -> list[web.AbstractRouteDef]:
        return [web.get(METRICS_PATH, self._respond)]

    @asynccontextmanager
    async def include_parts(
        self, platforms: Collection[Platform], worker: Worker, database: Database
    ) -> AsyncIterator[None]:
        """Serve metrics of the parts, and of the event loop's lag, while the block runs."""
        self._parts = platforms, worker, database
        try:
            async with run_in_background(_measure_loop_lag(), name="loop lag"):
                yield
        finally:
            self._parts = None

    async def _respond(self, request: web.Request) -> web.Response:
        if self._token:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        elif not _is_local(request):
            return web.Response(status=403, text="set METRICS_TOKEN and send it to read metrics from another machine\n")
        metrics.readiness.set(int(self._health.is_ready))
        if self._parts is not None:
            await self._measure(*self._parts)
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _measure(self, platforms: Collection[Platform], worker: Worker, database: Database) -> None:
        metrics.running_turns.set(worker.running_count)
        for platform in platforms:
            metrics.limit_headroom.set(platform.limiters.headroom, {"platform": platform.name})
        try:
            async with asyncio.timeout(DATABASE_TIMEOUT_SECONDS):
                found = await get_queue_overview(database)
        except (StoreError, TimeoutError) as error:
            log.warning("queued messages cannot be counted: %s", format_error(error))
        else:
            metrics.waiting_messages.set(found.messages)
            metrics.oldest_message_age.set(found.claimable_seconds)


def _is_local(request: web.Request) -> bool:
    """Return whether a request comes from this machine, and no proxy has forwarded it."""
    try:
        peer = ip_address(request.remote or "")
    except ValueError:
        return False
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return peer.is_loopback and not any(name in request.headers for name in _FORWARDED)


@cache
def _make_registry() -> CollectorRegistry:
    """Return the registry; the first call also sets OpenTelemetry's only meter provider."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    left_out = View(meter_name="gcp.vertex.agent", aggregation=DropAggregation())
    api.set_meter_provider(
        MeterProvider([reader], views=[left_out], exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False)
    )
    return registry


async def _measure_loop_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        metrics.loop_lag.record(max(0.0, loop.time() - due))
