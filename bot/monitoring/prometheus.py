"""What Prometheus is told at `/metrics`: what `core.observability.metrics` counts, and how the process is.

OpenTelemetry's SDK is loaded here alone, and only if somebody may ask. ADK's own metrics are left out: some have
labels for each conversation.
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

from bot.monitoring.health import Health
from channels.base import Channel
from core.concurrency.tasks import run_in_background
from core.conversations.overview import get_queue_overview
from core.errors import StoreError
from core.observability import metrics
from core.secret_redaction import format_error
from core.store.database import Database
from core.turns.worker import Worker

log = logging.getLogger(__name__)

PATH = "/metrics"

#: Seconds between two looks at how late the event loop is.
LAG_SECONDS = 0.5

#: Seconds that the database may take to tell what waits; without its word, the rest is told.
DATABASE_SECONDS = 2.0

#: Headers that proxies add: the client is another machine, whatever address the request comes from.
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via", "CF-Connecting-IP")


class Metrics:
    """What is told.

    Args:
        token: the bearer token that a client has to send; without one, only clients on this machine are answered.
    """

    def __init__(self, health: Health, token: str = "") -> None:
        self._registry = _registry()
        self._health = health
        self._token = token
        self._parts: tuple[Collection[Channel], Worker, Database] | None = None

    @property
    def routes(self) -> list[web.AbstractRouteDef]:
        return [web.get(PATH, self._tell)]

    @asynccontextmanager
    async def watching(self, channels: Collection[Channel], worker: Worker, database: Database) -> AsyncIterator[None]:
        """Tell of these as well, for as long as this is entered."""
        self._parts = channels, worker, database
        try:
            async with run_in_background(_watch_loop(), name="loop lag"):
                yield
        finally:
            self._parts = None

    async def _tell(self, request: web.Request) -> web.Response:
        if self._token:
            shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(shown.encode(), self._token.encode()):
                return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        elif not _is_local(request):
            return web.Response(status=403, text="from another machine, METRICS_TOKEN has to be set and sent\n")
        metrics.readiness.set(int(self._health.is_ready))
        if self._parts is not None:
            await self._look(*self._parts)
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _look(self, channels: Collection[Channel], worker: Worker, database: Database) -> None:
        metrics.running_turns.set(worker.running_count)
        for channel in channels:
            metrics.budget_left.set(channel.limiters.headroom, {"channel": channel.name})
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                found = await get_queue_overview(database)
        except (StoreError, TimeoutError) as error:
            log.warning("cannot tell what waits: %s", format_error(error))
        else:
            metrics.waiting_messages.set(found.messages)
            metrics.oldest_message_age.set(found.free)


def _is_local(request: web.Request) -> bool:
    """Return whether the client is on this machine, without a proxy between."""
    try:
        peer = ip_address(request.remote or "")
    except ValueError:
        return False
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return peer.is_loopback and not any(name in request.headers for name in _FORWARDED)


@cache
def _registry() -> CollectorRegistry:
    """Of the process: OpenTelemetry takes no other one afterwards."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    left_out = View(meter_name="gcp.vertex.agent", aggregation=DropAggregation())
    api.set_meter_provider(
        MeterProvider([reader], views=[left_out], exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False)
    )
    return registry


async def _watch_loop() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        metrics.loop_lag.record(max(0.0, loop.time() - due))
