"""HTTP server that accepts requests before the platforms' routes are registered."""

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import web

from bot import server as servers
from bot.server import RETRY_AFTER_SECONDS, run_server
from channels.slack.client.http_mode import EVENTS_PATH
from chatrig.slack import SlackSimulator


async def test_a_request_waits_until_its_route_is_registered() -> None:
    taken = asyncio.Queue[str]()

    async def accept_event(request: web.Request) -> web.Response:
        taken.put_nowait((await request.json())["event_id"])
        return web.Response()

    async with SlackSimulator() as slack, run_server(0, [], is_needed=True) as server:
        server_url = f"http://127.0.0.1:{server.port}"
        slack.request_url.url = server_url + EVENTS_PATH
        await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> hello")
        await slack.wait_for(lambda: slack.envelopes)
        async with aiohttp.ClientSession() as session:
            early = asyncio.create_task(_get_status(session, f"{server_url}/else"))
            await asyncio.wait([early], timeout=0.1)
            assert not early.done()
            server.add_routes([web.post(EVENTS_PATH, accept_event)])
            assert await early == 404
        event_ids = {e.payload["event_id"] for e in slack.envelopes}
        async with asyncio.timeout(30):
            assert {await taken.get() for _ in event_ids} == event_ids
        await slack.wait_for(lambda: all(e.acknowledged_at is not None for e in slack.envelopes))
        assert {(e.attempt, e.reason) for e in slack.envelopes} == {(0, "")}


async def test_a_request_waits_for_a_route_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert servers.HOLD_SECONDS < 3
    monkeypatch.setattr(servers, "HOLD_SECONDS", 0.05)
    async with (
        run_server(0, [], is_needed=True) as server,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{server.port}{EVENTS_PATH}") as answer,
    ):
        assert answer.status == 503
        assert answer.headers["Retry-After"] == str(RETRY_AFTER_SECONDS)


async def _get_status(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as answer:
        return answer.status


@pytest.mark.parametrize(("host", "is_public"), [("127.0.0.1", False), ("0.0.0.0", True), (None, True)])
async def test_the_server_listens_on_the_given_address_only(host: str | None, is_public: bool) -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    routes = [web.get("/here", _answer)]
    async with run_server(port, routes, is_needed=True, host=host), aiohttp.ClientSession() as session:
        assert await _get_status(session, f"http://127.0.0.1:{port}/here") == 200
        if is_public:
            assert await _get_status(session, f"http://127.0.0.2:{port}/here") == 200
        else:
            with pytest.raises(aiohttp.ClientConnectionError):
                await _get_status(session, f"http://127.0.0.2:{port}/here")


async def _answer(_request: web.Request) -> web.Response:
    return web.Response()
