"""Attempts to make the tool `read_page` fetch private addresses."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web
from aiohttp.resolver import DefaultResolver

from core.tools.builtin.read_page import PageReader
from core.tools.public_web import is_public

LOCAL = {
    "localhost by its name": "http://localhost:{port}/",
    "localhost by a name with a dot": "http://localhost.:{port}/",
    "the loopback address": "http://127.0.0.1:{port}/",
    "another loopback address": "http://127.8.8.8:{port}/",
    "the address that means this machine": "http://0.0.0.0:{port}/",
    "an address as one number": "http://2130706433:{port}/",
    "an address in hex": "http://0x7f000001:{port}/",
    "an address in hex by parts": "http://0x7f.0.0.1:{port}/",
    "an address in octal": "http://0177.0.0.1:{port}/",
    "an address with a part left out": "http://127.1:{port}/",
    "full-width digits": "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11:{port}/",
    "circled digits": "http://①②⑦.0.0.1:{port}/",
    "ideographic dots": "http://127。0。0。1:{port}/",
    "the loopback of ipv6": "http://[::1]:{port}/",
    "ipv4 within ipv6": "http://[::ffff:127.0.0.1]:{port}/",
    "ipv4 within ipv6 in hex": "http://[::ffff:7f00:1]:{port}/",
    "ipv4 within nat64": "http://[64:ff9b::7f00:1]:{port}/",
    "ipv4 within 6to4": "http://[2002:7f00:1::]:{port}/",
    "a link-local address with a zone": "http://[fe80::1%25lo]:{port}/",
    "the metadata of a cloud": "http://169.254.169.254/latest/meta-data/",
    "a private network": "http://10.0.0.1:{port}/",
    "the network of a carrier": "http://100.64.0.1:{port}/",
    "a name before the host": "http://example.com@127.0.0.1:{port}/",
    "a backslash before the host": "http://example.com\\@127.0.0.1:{port}/",
    "a tab within the host": "http://127.0.\t0.1:{port}/",
    "another scheme": "file:///etc/passwd",
}


@asynccontextmanager
async def run_private_server(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[str]]]:
    """Run a local HTTP server; yield its port, and the list of requested paths."""
    requested_paths = list[str]()

    async def serve(request: web.Request) -> web.Response:
        requested_paths.append(request.path)
        return web.Response(text="the inner secret")

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, 0).start()
    try:
        yield runner.addresses[0][1], requested_paths
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("attack", LOCAL)
async def test_no_address_notation_reaches_this_machine(attack: str) -> None:
    async with run_private_server() as (port, requested_paths):
        result = await PageReader(timeout_seconds=5)({"url": LOCAL[attack].format(port=port)})
    assert set(result) == {"error"}
    assert requested_paths == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location", ["http://127.0.0.2:{port}/secret", "//127.0.0.2:{port}/secret", "file:///etc/passwd"]
)
async def test_no_redirect_reaches_a_private_address(status: int, location: str) -> None:
    async with run_private_server("127.0.0.2") as (port, requested_paths):

        async def redirect(_request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": location.format(port=port)})

        app = web.Application()
        app.router.add_get("/", redirect)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        public = ip_address("127.0.0.1")
        try:
            result = await PageReader(lambda address: address == public, timeout_seconds=5)(
                {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}
            )
        finally:
            await runner.cleanup()
    assert "error" in result
    assert requested_paths == []


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([["93.184.215.14"], ["127.0.0.1"]], id="first a public address, then a private one"),
        pytest.param([["93.184.215.14", "127.0.0.1"]], id="a public address and a private one"),
        pytest.param([["127.0.0.1"]], id="a private address"),
        pytest.param([["::ffff:127.0.0.1"]], id="a private address within another"),
    ],
)
async def test_dns_rebinding_reaches_no_private_address(
    answers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    remaining, connected = list(answers), list[str]()

    async def resolve(_self: Any, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        current = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return [
            {"hostname": host, "host": one, "port": port, "family": family, "proto": 0, "flags": 0} for one in current
        ]

    async def connect(*_: Any, **__: Any) -> Any:
        connected.append("somewhere")
        raise OSError("no way out")

    monkeypatch.setattr(DefaultResolver, "resolve", resolve)
    async with run_private_server() as (port, requested_paths):
        loop = asyncio.get_running_loop()
        original = loop.sock_connect

        async def record_connection(sock: socket.socket, address: Any) -> None:
            connected.append(address[0])
            if not is_public(ip_address(address[0])):
                await original(sock, address)
            raise OSError("no way out")

        monkeypatch.setattr(loop, "sock_connect", record_connection)
        result = await PageReader(timeout_seconds=3)({"url": f"http://rebind.example:{port}/"})
    assert "error" in result
    assert requested_paths == []
    assert all(is_public(ip_address(address)) for address in connected)
