"""Socket Mode of the local Slack, through Bolt."""

import asyncio
from time import monotonic
from typing import Any

import aiohttp
import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import Connect, create_client


def create_app(simulator: SlackSimulator) -> AsyncApp:
    return AsyncApp(client=create_client(simulator))


class SlackEventRecorder:
    """Recorder of the events that reach the listeners of an app.

    Attributes:
        bodies: the bodies of the events, in order of arrival.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._recorded = asyncio.Event()

    async def record(self, body: dict[str, Any]) -> None:
        self.bodies.append(body)
        self._recorded.set()

    async def wait_for_events(self, count: int) -> list[dict[str, Any]]:
        """Wait for `count` listener calls, and return their bodies.

        Bolt acknowledges an event before it calls the listener.
        """
        async with asyncio.timeout(30):
            while len(self.bodies) < count:
                self._recorded.clear()
                await self._recorded.wait()
        return self.bodies


def create_recording_app(simulator: SlackSimulator) -> tuple[AsyncApp, SlackEventRecorder]:
    """Return an app that only acknowledges events, and the recorder of its events."""
    app, recorder = create_app(simulator), SlackEventRecorder()
    for kind in ("message", "app_mention"):
        app.event(kind)(recorder.record)
    return app, recorder


async def test_a_bolt_app_posts_a_placeholder_and_updates_it(slack: SlackSimulator, connect: Connect) -> None:
    app = create_app(slack)

    @app.event("app_mention")
    async def answer(event: dict[str, Any], client: AsyncWebClient) -> None:
        posted = await client.chat_postMessage(channel=event["channel"], thread_ts=event["ts"], text="…")
        await client.chat_update(channel=event["channel"], ts=posted["ts"], text="It is 42.")

    @app.event("message")
    async def ignore() -> None: ...

    await connect(slack, app)
    question = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> what is it?")

    def has_answer() -> bool:
        return [m.text for m in slack.messages("general", thread_ts=question.ts)] == [
            "@bot what is it?",
            "It is 42.",
        ]

    await slack.wait_for(has_answer)
    _, reply = slack.messages("general")
    assert [version.text for version in reply.versions] == ["…", "It is 42."]
    assert reply.edited
    assert reply.bot_id == slack.bot_id
    await slack.wait_for(lambda: [bool(e.acknowledged_at) for e in slack.envelopes] == [True] * 4)
    events = [e.payload["event"] for e in slack.envelopes]
    assert [(e["type"], e.get("subtype")) for e in events] == [
        ("message", None),
        ("app_mention", None),
        ("message", None),
        ("message", "message_changed"),
    ]
    assert events[0]["ts"] == events[1]["ts"]
    assert slack.envelopes[0].payload["event_id"] != slack.envelopes[1].payload["event_id"]
    assert events[2]["bot_id"] == slack.bot_id
    assert events[3]["previous_message"]["text"] == "…"


async def test_an_event_acknowledged_too_late_is_retried(fast_slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(fast_slack)
    handler = await connect(fast_slack, app)
    handle = handler.handle

    async def handle_slowly(client: Any, request: Any) -> None:
        if not request.retry_attempt:
            await fast_slack.wait_for(lambda: len(fast_slack.envelopes) == 2)
        await handle(client, request)

    handler.client.socket_mode_request_listeners[:] = [handle_slowly]
    await fast_slack.post_message("ada", "general", "hello")
    await recorder.wait_for_events(2)
    first, second = fast_slack.envelopes
    assert (first.id, first.payload) == (second.id, second.payload)
    assert (second.attempt, second.reason) == (1, "timeout")
    assert second.sent_at - first.sent_at >= 0.14
    assert recorder.bodies[0]["event_id"] == recorder.bodies[1]["event_id"]


async def test_an_unacknowledged_event_is_sent_four_times(connect: Connect) -> None:
    async with SlackSimulator(speed=1000) as slack:
        handler = await connect(slack, create_app(slack))

        async def ignore_request(client: Any, request: Any) -> None: ...

        handler.client.socket_mode_request_listeners[:] = [ignore_request]
        await slack.post_message("ada", "general", "hello")
        await slack.wait_for(lambda: len(slack.envelopes) == 4)
        with pytest.raises(TimeoutError, match="4 envelopes"):
            await slack.wait_for(lambda: len(slack.envelopes) > 4, timeout=0.1)
        assert [envelope.attempt for envelope in slack.envelopes] == [0, 1, 2, 3]


async def test_events_without_a_socket_arrive_with_the_next_connection(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await slack.post_message("ada", "general", "first")
    await slack.post_message("ada", "general", "second")
    assert not slack.envelopes
    await connect(slack, app)
    await recorder.wait_for_events(2)
    assert [body["event"]["text"] for body in recorder.bodies] == ["first", "second"]
    assert [(envelope.attempt, envelope.reason) for envelope in slack.envelopes] == [(1, "timeout")] * 2


async def test_a_client_reconnects_and_gets_missed_events(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await connect(slack, app, ping_interval=0.2)
    await slack.drop_sockets()
    assert slack.connection_count == 0
    await slack.post_message("ada", "general", "still there?")
    await slack.wait_until_connected()
    await recorder.wait_for_events(1)
    assert recorder.bodies[0]["event"]["text"] == "still there?"


async def test_unacknowledged_events_of_a_dead_socket_go_to_the_next_one(
    slack: SlackSimulator, connect: Connect
) -> None:
    app, recorder = create_recording_app(slack)
    handler = await connect(slack, app, ping_interval=0.2)
    handled, arrived = handler.client.socket_mode_request_listeners[:], asyncio.Event()

    async def ignore_request(client: Any, request: Any) -> None:
        arrived.set()

    handler.client.socket_mode_request_listeners[:] = [ignore_request]
    await slack.post_message("ada", "general", "hello")
    await asyncio.wait_for(arrived.wait(), 30)
    handler.client.socket_mode_request_listeners[:] = handled
    await slack.drop_sockets()
    await recorder.wait_for_events(1)
    assert [envelope.attempt for envelope in slack.envelopes] == [0, 1]


async def test_events_lost_in_a_frozen_socket_arrive_at_the_next_one(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await connect(slack, app, ping_interval=0.2)
    await slack.freeze_sockets()
    assert slack.connection_count == 0
    message = await slack.post_message("ada", "general", "hello?")
    await slack.wait_for(lambda: slack.envelopes)
    await slack.wait_until_connected()
    (body,) = await recorder.wait_for_events(1)
    assert body["event"]["ts"] == message.ts
    assert [envelope.attempt for envelope in slack.envelopes] == [0, 1]


async def test_discarded_events_are_not_delivered(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await slack.post_message("ada", "general", "one")
    await slack.discard_pending()
    await connect(slack, app)
    await slack.post_message("ada", "general", "two")
    assert [body["event"]["text"] for body in await recorder.wait_for_events(1)] == ["two"]


async def test_a_client_reconnects_after_a_disconnect_message(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await connect(slack, app)
    await slack.refresh_sockets()
    await slack.wait_until_connected()
    await slack.post_message("ada", "general", "hello")
    await recorder.wait_for_events(1)
    assert len([call for call in slack.calls if call.method == "apps.connections.open"]) == 2


async def test_a_client_that_ignores_disconnect_is_closed(fast_slack: SlackSimulator) -> None:
    url = (await create_client(fast_slack).apps_connections_open(app_token=fast_slack.app_token))["url"]
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as ws:
        hello = await ws.receive_json()
        assert hello["type"] == "hello"
        assert hello["num_connections"] == 1
        assert hello["connection_info"] == {"app_id": fast_slack.app_id}
        assert hello["debug_info"]["approximate_connection_time"] > 0
        await fast_slack.refresh_sockets("warning")
        assert (await ws.receive_json())["reason"] == "warning"
        assert fast_slack.connection_count == 0
        assert (await ws.receive(timeout=30)).type is aiohttp.WSMsgType.CLOSE


async def test_a_ticket_is_valid_for_one_handshake(slack: SlackSimulator) -> None:
    url = (await create_client(slack).apps_connections_open(app_token=slack.app_token))["url"]
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as ws:
            await ws.receive_json()
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url)


async def test_a_rejected_handshake_uses_up_its_ticket(slack: SlackSimulator) -> None:
    slack.faults.refuse_handshakes(1)
    url = (await create_client(slack).apps_connections_open(app_token=slack.app_token))["url"]
    async with aiohttp.ClientSession() as session:
        for status in (500, 408):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(url)
            assert refused.value.status == status


async def test_each_envelope_goes_to_one_socket(slack: SlackSimulator) -> None:
    urls = [(await create_client(slack).apps_connections_open(app_token=slack.app_token))["url"] for _ in range(2)]
    async with aiohttp.ClientSession() as session:
        sockets = [await session.ws_connect(url) for url in urls]
        assert [(await ws.receive_json())["num_connections"] for ws in sockets] == [1, 2]
        for n in range(20):
            await slack.post_message("ada", "general", str(n))
        await slack.wait_for(lambda: len(slack.envelopes) == 20)
        await slack.drop_sockets()
        got = [[f.data async for f in ws if f.type is aiohttp.WSMsgType.TEXT] for ws in sockets]
    assert all(got)
    assert sum(map(len, got)) == 20


async def test_a_message_can_be_redelivered(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await connect(slack, app)
    message = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> hello")
    await recorder.wait_for_events(2)
    await slack.redeliver(message)
    await recorder.wait_for_events(4)
    assert sorted(body["event_id"] for body in recorder.bodies[:2]) == sorted(
        body["event_id"] for body in recorder.bodies[2:]
    )
    assert [envelope.attempt for envelope in slack.envelopes] == [0, 0, 1, 1]


async def test_a_subscription_without_its_scope_sends_no_events(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    slack.scopes.discard("channels:history")
    await connect(slack, app)
    await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> hello")
    await recorder.wait_for_events(1)
    assert [e.payload["event"]["type"] for e in slack.envelopes] == ["app_mention"]


async def test_latency_delays_envelopes(slack: SlackSimulator, connect: Connect) -> None:
    app, recorder = create_recording_app(slack)
    await connect(slack, app)
    slack.faults.set_latency(0.2)
    before = monotonic()
    await slack.post_message("ada", "general", "hello")
    await recorder.wait_for_events(1)
    assert slack.envelopes[0].sent_at - before >= 0.2


async def test_a_wrong_token_cannot_open_a_connection(slack: SlackSimulator) -> None:
    for token, error in (("xapp-wrong", "invalid_auth"), (slack.bot_token, "not_allowed_token_type")):
        with pytest.raises(SlackApiError) as refused:
            await create_client(slack).apps_connections_open(app_token=token)
        assert refused.value.response["error"] == error
