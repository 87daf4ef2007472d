import socket

import aiohttp
import pytest

from bot.monitoring.health import HealthMonitor
from bot.monitoring.prometheus import METRICS_PATH, MetricsEndpoint
from bot.server import run_server


def get_own_address() -> str:
    """Return this machine's address in its network; skip the test without one.

    Connecting a datagram socket sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.7", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


async def test_metrics_without_a_token_answer_loopback_only() -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    for token, status in (("", 403), ("letmein12345", 200)):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            run_server(port, MetricsEndpoint(HealthMonitor(), token).routes, is_needed=True, host=None),
            aiohttp.ClientSession(headers=headers) as session,
        ):
            found = []
            for host in ("127.0.0.1", get_own_address()):
                async with session.get(f"http://{host}:{port}{METRICS_PATH}") as answer:
                    found.append(answer.status)
            assert found == [200, status]
