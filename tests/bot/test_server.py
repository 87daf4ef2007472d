"""The server is there before what it serves: who comes too early is told to come again."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from bot.server import RETRY_SECONDS, serving
from channels.slack.client.http_mode import PATH
from sandbox.slack import SlackSandbox


async def test_what_slack_brings_while_the_bot_starts_is_refused_and_brought_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "sandbox.slack.events.http_mode.ACK_TIMEOUT", 600.0
    )  # ten seconds, as fast as time passes there
    async with SlackSandbox(speed=60) as slack, serving(0, [], is_needed=True) as server:
        slack.requests.url = f"http://127.0.0.1:{server.port}{PATH}"
        async with aiohttp.ClientSession() as session, session.post(slack.requests.url) as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"] == str(RETRY_SECONDS)
        taken = asyncio.Queue[str]()

        async def take(request: web.Request) -> web.Response:
            taken.put_nowait((await request.json())["event_id"])
            return web.Response()

        await slack.say("ada", "general", f"<@{slack.bot_user_id}> hello")
        await slack.wait_for(lambda: [e.reason for e in slack.envelopes].count("http_error") == 2)
        server.add([web.post(PATH, take)])
        told = {e.payload["event_id"] for e in slack.envelopes}
        async with asyncio.timeout(30):
            assert {await taken.get() for _ in told} == told
        await slack.wait_for(lambda: sum(e.acknowledged_at is not None for e in slack.envelopes) == len(told))
        assert all(e.attempt >= 1 for e in slack.envelopes if e.acknowledged_at is not None)
        async with aiohttp.ClientSession() as session, session.get(f"{slack.requests.url}/else") as answer:
            assert answer.status == 404
