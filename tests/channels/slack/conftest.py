"""Fixtures that run the Slack adapter with the core and a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.server import run_server
from channels.access import AccessPolicy, AccessRules
from channels.settings import MAX_MESSAGES, BackfillLimits
from channels.slack.adapter import SlackAdapter
from channels.slack.client import socket_mode as socket
from channels.slack.client.auth import make_web_client
from channels.slack.client.http_mode import EVENTS_PATH
from channels.slack.manifest import manifest
from channels.slack.platform import SlackPlatform
from channels.slack.settings import DEFAULT_PROMPTS, SlackSettings, Streaming
from chatrig.slack import SlackMessage, SlackSimulator
from core.messages.inbox_message import ReplyWithoutMention
from core.privacy.vault import Vault
from core.store.database import Database
from tests.channels.wiring import BACKFILL_LIMITS, OPEN_RULES, CoreParts, WiredBot, echo, run_core

#: Key that encrypts the tokens of several workspaces.
SECRET_KEY = "a key of thirty-two characters..."

#: Runs a test in Socket Mode and in HTTP mode.
BOTH_MODES = pytest.mark.parametrize("slack", ["socket", "http"], indirect=True)


@pytest.fixture
async def slack(request: pytest.FixtureRequest) -> AsyncIterator[SlackSimulator]:
    """Yield a Slack workspace in which the app has the scopes of its manifest.

    The fixture's parameter "http" adds a request URL to the manifest.
    """
    async with SlackSimulator() as simulator:
        address = "" if getattr(request, "param", "socket") == "socket" else "https://bot.example"
        simulator.install(manifest(prompts=DEFAULT_PROMPTS, address=address))
        yield simulator


@pytest.fixture(autouse=True)
def short_ping_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the client's WebSocket ping to 1 s, to notice broken sockets early.

    A shorter interval makes a client on a busy machine replace a working socket.
    """
    monkeypatch.setattr(socket, "PING_INTERVAL_SECONDS", 1)


def create_settings(slack: SlackSimulator, streaming: Streaming = "edit") -> SlackSettings:
    return SlackSettings(
        slack.bot_token,
        slack.app_token,
        slack.api_url,
        streaming,
        mode="socket" if slack.socket_mode else "http",
        signing_secret=slack.signing_secret,
    )


@pytest.fixture
def web(slack: SlackSimulator) -> AsyncWebClient:
    return make_web_client(create_settings(slack))


class WiredSlackBot(WiredBot):
    """Bot with a local Slack workspace and a scripted model.

    Attributes:
        address: the URL of its HTTP server; "" without one.
    """

    def __init__(self, slack: SlackSimulator, adapter: SlackAdapter, core: CoreParts) -> None:
        super().__init__(core)
        self.slack = slack
        self.adapter = adapter
        self.address = ""

    @property
    def mention(self) -> str:
        return f"<@{self.slack.bot_user_id}>"

    def list_thread(self, message: SlackMessage) -> list[SlackMessage]:
        return self.slack.messages(message.channel, thread_ts=message.thread_ts or message.ts)

    def list_texts(self, message: SlackMessage) -> list[str]:
        return [reply.text for reply in self.list_thread(message)]

    async def mention_bot(self, user: str, channel: str, text: str, **kwargs: Any) -> SlackMessage:
        return await self.slack.post_message(user, channel, f"{self.mention} {text}", **kwargs)

    async def dispatch(self, body: Mapping[str, Any]) -> int:
        """Pass a payload to the Bolt app, wait for its background tasks, and return the status of the response."""
        response = await self.adapter._app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=dict(body)))
        await self.adapter._intake.drain(10)
        return response.status

    async def wait_for_texts(self, message: SlackMessage, predicate: Callable[[list[str]], Any]) -> list[str]:
        """Wait until the texts of a message's thread satisfy the predicate; return them."""

        def get_texts() -> list[str] | None:
            texts = self.list_texts(message)
            return texts if predicate(texts) else None

        texts = await self.slack.wait_for(get_texts)
        assert texts is not None
        return texts


@asynccontextmanager
async def run_bot(
    slack: SlackSimulator,
    tmp_path: Path,
    *script: Any,
    time_limit: float = 30,
    max_chunks: int = MAX_MESSAGES,
    connect: bool = True,
    stop_timeout: float = 5,
    streaming: Streaming = "edit",
    backfill_limits: BackfillLimits = BACKFILL_LIMITS,
    follow: ReplyWithoutMention = "author",
    secret_key: str = SECRET_KEY,
    core: Mapping[str, Any] | None = None,
    rules: AccessRules = OPEN_RULES,
    external: bool = False,
    admins: Sequence[str] = (),
    **kwargs: Any,
) -> AsyncIterator[WiredSlackBot]:
    settings = replace(create_settings(slack, streaming), **kwargs)
    rules = replace(rules, allows_external=external, allows_bots=settings.answers_bots)
    limits: dict[str, Any] = {"time_limit": time_limit, "max_chunks": max_chunks, "follow": follow}
    limits["access_policy"] = AccessPolicy({"slack": rules}, admins)

    def make_platform(database: Database) -> SlackPlatform:
        vault = Vault(database, secret_key) if settings.client_id else None
        return SlackPlatform(settings, vault, tracks_unaddressed=follow != "never")

    async with run_core(tmp_path, make_platform, *script, **limits, **(core or {})) as core_parts:
        adapter = SlackAdapter(core_parts.platform, core_parts.services, core_parts.watermarks, backfill_limits)
        bot = WiredSlackBot(slack, adapter, core_parts)
        worker_task = asyncio.create_task(bot.worker.run(core_parts.answer))
        try:
            async with run_server(0, adapter.routes, is_needed=True) as server:
                bot.address = f"http://127.0.0.1:{server.port}"
                if connect:
                    await adapter.start()
                    if settings.mode == "http":
                        await slack.request_url.verify(bot.address + EVENTS_PATH)
                    await slack.wait_until_connected()
                yield bot
                await adapter.stop()
        finally:
            await adapter.stop()
            await bot.worker.stop(stop_timeout)
            await asyncio.wait_for(worker_task, 30)
            await core_parts.platform.aclose()


@pytest.fixture
async def bot(slack: SlackSimulator, tmp_path: Path) -> AsyncIterator[WiredSlackBot]:
    """Yield a bot that answers each question with its text: see `echo`."""
    async with run_bot(slack, tmp_path, echo) as bot:
        yield bot
