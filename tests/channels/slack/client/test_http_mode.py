"""HTTP mode of Slack: signatures, redeliveries and time limits of requests."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from channels.slack.client import auth
from channels.slack.client import http_mode as http
from chatrig.slack import SlackFile, SlackSimulator
from chatrig.slack.events.http_mode import encode_body
from core.errors import StoreError
from core.inbox.store import InboxStore
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo

HTTP = pytest.mark.parametrize("slack", ["http"], indirect=True)


async def post_request(bot: WiredSlackBot, body: str, headers: dict[str, str], kind: str = "application/json") -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(bot.address + http.EVENTS_PATH, data=body, headers={"Content-Type": kind, **headers}) as answer,
    ):
        return answer.status


@HTTP
async def test_a_request_with_a_wrong_signature_or_time_is_refused(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_turns(1)
    payload = next(e for e in slack.envelopes if e.payload["event"]["type"] == "app_mention").payload
    forged = json.dumps({**payload, "event": {**payload["event"], "ts": "1700000000.000001"}})
    good = slack.request_url.sign(forged)
    stranger = {**good, "X-Slack-Signature": "v0=" + "0" * 64}
    old, early = (slack.request_url.sign(forged, at=time.time() + off) for off in (-301, 301))
    no_time = {**good, "X-Slack-Request-Timestamp": "soon"}
    for headers in ({}, stranger, old, early, no_time, {**good, "X-Slack-Signature": "v0=ü"}):
        assert await post_request(bot, forged, headers) == 401
    assert await post_request(bot, forged + " ", good) == 401
    assert await post_request(bot, "{", {}) == 401
    assert len(await bot.list_inbox_messages()) == 1
    assert len(bot.list_texts(question)) == 2
    assert await post_request(bot, "{", slack.request_url.sign("{")) == 500


@HTTP
async def test_a_request_before_the_start_is_refused_and_redelivered(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, connect=False) as bot:
        slack.request_url.url = bot.address + http.EVENTS_PATH
        question = await bot.mention_bot("ada", "general", "one")
        await slack.wait_for(lambda: slack.envelopes)
        assert await post_request(bot, "{}", {}) == 401
        assert await post_request(bot, "{}", slack.request_url.sign("{}")) == 503
        assert not await bot.list_inbox_messages()
        await bot.adapter.start()
        await slack.redeliver(slack.envelopes[0])
        await bot.wait_for_texts(question, lambda texts: len(texts) == 2)


@HTTP
async def test_a_replay_and_a_redelivery_are_answered_once(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    question = await bot.mention_bot("ada", "general", "one")
    await bot.wait_for_turns(1)
    body, kind = encode_body("events_api", slack.envelopes[0].payload)
    retry_headers = {"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}
    for headers in ({}, retry_headers):
        assert await post_request(bot, body, {**slack.request_url.sign(body), **headers}, kind) == 200
    assert len(await bot.list_turns()) == 1
    assert len(bot.list_texts(question)) == 2


@HTTP
async def test_an_incomplete_request_times_out(bot: WiredSlackBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RESPONSE_TIMEOUT_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(bot.address.rpartition(":")[2]))
    writer.write(f"POST {http.EVENTS_PATH} HTTP/1.1\r\nHost: bot\r\nContent-Length: 100\r\n\r\n{{".encode())
    async with asyncio.timeout(30):
        assert b" 408 " in await reader.readline()
    writer.close()


@HTTP
async def test_a_mention_waits_for_the_message_event_with_its_files(
    slack: SlackSimulator, bot: WiredSlackBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bot.mention_bot("ada", "general", "one", files=[SlackFile("F1", "plan.txt", b"on Monday")])
    await bot.wait_for_turns(1)
    payloads = {e.payload["event"]["type"]: e.payload for e in slack.envelopes[:2]}
    slack.subscriptions.clear()
    question = await bot.mention_bot("ada", "general", "two")
    bodies = []
    for kind in ("app_mention", "message"):
        event = {**payloads[kind]["event"], "ts": question.ts, "text": f"{bot.mention} two"}
        bodies.append(encode_body("events_api", {**payloads[kind], "event": event})[0])
    mentioned = asyncio.create_task(post_request(bot, bodies[0], slack.request_url.sign(bodies[0])))
    await asyncio.wait([mentioned], timeout=0.3)  # the mention waits for the message event
    assert await post_request(bot, bodies[1], slack.request_url.sign(bodies[1])) == 200
    assert await mentioned == 200
    await bot.wait_for_turns(2)
    assert [[file["name"] for file in row.message["attachments"]] for row in await bot.list_inbox_messages()] == [
        ["plan.txt"],
        ["plan.txt"],
    ]


async def test_a_slow_request_is_answered_in_time_and_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "RESPONSE_TIMEOUT_SECONDS", 0.4)
    accept, slow = InboxStore.accept, iter((0.6,))

    async def accept_slowly(self: InboxStore, inbound: Any) -> Any:
        await asyncio.sleep(next(slow, 0))
        return await accept(self, inbound)

    monkeypatch.setattr(InboxStore, "accept", accept_slowly)
    monkeypatch.setattr(
        "chatrig.slack.events.http_mode.ACK_TIMEOUT_SECONDS", 200.0
    )  # ten seconds at the simulator's speed
    async with SlackSimulator(speed=20) as slack:
        slack.socket_mode = False
        async with run_bot(slack, tmp_path, echo) as bot:
            question = await bot.mention_bot("ada", "general", "one")
            await slack.wait_for(lambda: any(e.reason == "http_error" and e.acknowledged_at for e in slack.envelopes))
            await bot.wait_for_turns(1)
            await bot.wait_for_texts(question, lambda texts: len(texts) == 2)
            assert len(await bot.list_inbox_messages()) == 1


async def test_a_request_that_cannot_be_stored_is_refused_and_redelivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = InboxStore.accept, iter([StoreError("out of reach")] * 2)

    async def fail_at_first(self: InboxStore, inbound: Any) -> Any:
        if error := next(failures, None):
            raise error
        return await accept(self, inbound)

    monkeypatch.setattr(InboxStore, "accept", fail_at_first)
    async with SlackSimulator(speed=20) as slack:
        slack.socket_mode = False
        async with run_bot(slack, tmp_path, echo) as bot:
            question = await bot.mention_bot("ada", "general", "one")
            await bot.wait_for_texts(question, lambda texts: len(texts) == 2)
            assert len(await bot.list_turns()) == 1


@HTTP
async def test_a_revoked_token_stops_the_heartbeat(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "TOKEN_CHECK_SECONDS", 0.02)
    async with run_bot(slack, tmp_path, echo) as bot:
        slack.faults.fail("auth.test", 1000, error="token_revoked")
        await slack.wait_for(lambda: slack.calls[-1].error == "token_revoked")
        heard_at = bot.adapter.last_event_at()
        count = len(slack.calls)
        await slack.wait_for(lambda: len(slack.calls) > count + 2)
        assert bot.adapter.last_event_at() == heard_at


@HTTP
async def test_a_stop_cancels_a_request_that_takes_too_long(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CLOSE_SECONDS", 0.1)
    started, broken = asyncio.Event(), asyncio.Event()

    async def hang(_self: InboxStore, _inbound: Any) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            broken.set()

    async with run_bot(slack, tmp_path, echo) as bot:
        monkeypatch.setattr(InboxStore, "accept", hang)
        await bot.mention_bot("ada", "general", "one")
        await asyncio.wait_for(started.wait(), 30)
        await bot.adapter.stop()
        assert broken.is_set()


@HTTP
async def test_a_stopped_bot_refuses_requests(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    await bot.adapter.stop()
    assert await post_request(bot, "{}", slack.request_url.sign("{}")) == 503
    await bot.adapter.reconnect()
    assert bot.adapter.last_event_at() > 0
