from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.socket import Socket
from sandbox.slack import SlackSandbox


@pytest.fixture
async def socket(slack: SlackSandbox, web: AsyncWebClient) -> AsyncIterator[Socket]:
    app = AsyncApp(client=web)

    @app.event("message")
    async def hear(body: dict[str, Any]) -> None: ...

    socket = Socket(app, slack.app_token, on_back=lambda _: None)
    yield socket
    await socket.close()


def opened(slack: SlackSandbox) -> int:
    return sum(call.method == "apps.connections.open" for call in slack.calls)


async def test_a_refused_handshake_is_tried_again_with_a_new_ticket(slack: SlackSandbox, socket: Socket) -> None:
    slack.faults.refuse_handshakes(2)
    await socket.open()
    await slack.wait_connected()
    assert opened(slack) == 3


async def test_a_handshake_that_fails_while_reconnecting_is_recovered_from(slack: SlackSandbox, socket: Socket) -> None:
    await socket.open()
    await slack.wait_connected()
    slack.faults.refuse_handshakes(2)
    await slack.drop_sockets()
    said = await slack.say("ada", "general", "still there?")
    await slack.wait_connected()
    await slack.wait_for(lambda: [e.payload["event"]["ts"] for e in slack.envelopes] == [said.ts])
    await slack.wait_for(lambda: slack.envelopes[-1].acknowledged_at)


async def test_a_request_to_connect_anew_is_followed(slack: SlackSandbox, socket: Socket) -> None:
    await socket.open()
    await slack.wait_connected()
    await slack.refresh_sockets()
    await slack.wait_connected()
    assert opened(slack) == 2
