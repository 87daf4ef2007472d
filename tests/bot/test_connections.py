import asyncio
import resource

import aiohttp
import pytest
from aiohttp import web

from bot import connections
from bot.connections import raise_open_files_limit
from bot.server import run_server


async def echo(request: web.Request) -> web.Response:
    return web.Response(text=await request.text())


ROUTES = [web.post("/echo", echo), web.get("/healthz", echo)]


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the server closes the connection without sending a byte."""
    try:
        async with asyncio.timeout(30):
            return await reader.read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "part",
    [b"", b"GET /healthz HT", b"POST /echo HTTP/1.1\r\nHost: b\r\nContent-Length: 9\r\n\r\nab"],
    ids=["nothing", "half of the headers", "half of the body"],
)
async def test_a_connection_without_a_whole_request_in_time_is_closed(
    part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)
    async with run_server(0, ROUTES, is_needed=True) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(part)
        assert await is_closed(reader)
        writer.close()


async def test_a_request_that_takes_long_to_answer_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.05)
    passed = asyncio.Event()

    async def answer_slowly(_request: web.Request) -> web.Response:
        asyncio.get_running_loop().call_later(0.2, passed.set)
        await passed.wait()
        return web.Response(text="done")

    async with (
        run_server(0, [web.get("/slow", answer_slowly)], is_needed=True) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}/slow") as answer,
    ):
        assert await answer.text() == "done"


async def test_at_the_limit_the_connection_that_was_idle_for_longest_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def answer_slowly(_request: web.Request) -> web.Response:
        started.set()
        await go_on.wait()
        return web.Response(text="done")

    async with run_server(0, [*ROUTES, web.get("/slow", answer_slowly)], is_needed=True) as server:
        busy, busy_writer = await asyncio.open_connection("127.0.0.1", server.port)
        busy_writer.write(b"GET /slow HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
        await started.wait()
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", server.port)
        newer, newer_writer = await asyncio.open_connection("127.0.0.1", server.port)
        url = f"http://127.0.0.1:{server.port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        assert await is_closed(idle)
        newer_writer.write(b"GET /healthz HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
        go_on.set()
        for reader in (newer, busy):
            assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 200")
        for writer in (busy_writer, idle_writer, newer_writer):
            writer.close()


def test_the_soft_limit_of_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(256, 4_096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    for _ in range(2):
        raise_open_files_limit()
    assert limits == [(256, 4_096), (4_096, 4_096)]
