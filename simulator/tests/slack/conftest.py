"""Fixtures that connect Bolt and slack_sdk to the local Slack."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


@pytest.fixture
async def fast_slack() -> AsyncIterator[SlackSimulator]:
    """Yield a local Slack that runs 20 times as fast: 3 s take 150 ms."""
    async with SlackSimulator(speed=20) as simulator:
        yield simulator


class Connect(Protocol):
    """Function that connects an app to a local Slack by Socket Mode.

    Args:
        ping_interval: seconds between two pings, and until a client notices a broken socket. An interval below a second
            makes a client on a busy machine replace a working socket.
    """

    def __call__(
        self, simulator: SlackSimulator, app: AsyncApp, *, ping_interval: float = 5
    ) -> Awaitable[AsyncSocketModeHandler]: ...


def create_client(simulator: SlackSimulator, **options: Any) -> AsyncWebClient:
    return AsyncWebClient(token=simulator.bot_token, base_url=simulator.api_url, **options)


@pytest.fixture
def client(slack: SlackSimulator) -> AsyncWebClient:
    return create_client(slack)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Yield a function that connects an app by Socket Mode; close them at the end."""
    handlers: list[AsyncSocketModeHandler] = []

    async def connect_app(
        simulator: SlackSimulator, app: AsyncApp, *, ping_interval: float = 5
    ) -> AsyncSocketModeHandler:
        handler = AsyncSocketModeHandler(app, simulator.app_token, ping_interval=ping_interval)
        handlers.append(handler)
        await handler.connect_async()
        await simulator.wait_until_connected()
        return handler

    yield connect_app
    for handler in handlers:
        await handler.close_async()


@pytest.fixture
def general(slack: SlackSimulator) -> str:
    return slack.channels["general"].id


async def catch_error(call: Any) -> dict[str, Any]:
    """Await a call that Slack rejects, and return the error response."""
    with pytest.raises(SlackApiError) as refused:
        await call
    body = refused.value.response.data
    assert isinstance(body, dict)
    return body
