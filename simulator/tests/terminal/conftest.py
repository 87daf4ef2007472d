import asyncio
from collections.abc import AsyncIterator
from typing import Any

import discord
import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from tests.discord.conftest import Connect, RecordingClient, connect, create_intents

__all__ = ["connect"]


class SlackSdkBot:
    """Bot with Slack's own client library, controlled by a test.

    Attributes:
        mentions: (channel, ts) of each mention.
        on_command: the response to a slash command.
        modal: the modal that a button opens.
        on_submit: the response to a submitted modal.
    """

    def __init__(self, slack: SlackSimulator) -> None:
        self.web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        self.mentions: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.on_command = "We start over."
        self.modal: dict[str, Any] = {}
        self.on_submit: dict[str, Any] = {}
        self._socket = SocketModeClient(app_token=slack.app_token, web_client=AsyncWebClient(base_url=slack.api_url))
        self._socket.socket_mode_request_listeners.append(self._handle_request)

    async def connect(self) -> None:
        await self._socket.connect()

    async def aclose(self) -> None:
        await self._socket.close()

    async def post_message(self, channel: str, text: str, thread_ts: str | None = None) -> str:
        posted = await self.web.chat_postMessage(channel=channel, text=text, thread_ts=thread_ts)
        return str(posted["ts"])

    async def update_message(self, channel: str, ts: str, text: str) -> None:
        await self.web.chat_update(channel=channel, ts=ts, text=text)

    async def _handle_request(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        kind = request.payload.get("type")
        payload = {"text": self.on_command} if request.type == "slash_commands" else None
        payload = self.on_submit if kind == "view_submission" else payload
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload=payload))
        if kind in ("message_action", "block_actions") and self.modal:
            await self.web.views_open(trigger_id=request.payload["trigger_id"], view=self.modal)
        event: dict[str, Any] = request.payload.get("event", {})
        if event.get("type") == "app_mention":
            self.mentions.put_nowait((event["channel"], event.get("thread_ts", event["ts"])))


class DiscordBot(RecordingClient):
    """Bot with discord.py that responds to `/ask` once `answers` is set."""

    def __init__(self) -> None:
        super().__init__(create_intents("message_content"))
        self.answers = asyncio.Event()

        @self.tree.command(name="ask", description="Ask")
        async def ask(interaction: discord.Interaction, what: str = "nothing") -> None:
            await interaction.response.defer(ephemeral=True, thinking=True)
            await self.answers.wait()
            await interaction.edit_original_response(content=f"About {what}")

        @self.event
        async def on_interaction(interaction: discord.Interaction) -> None:
            """Respond to a button with a modal, and to a modal or a menu with its values."""
            data: dict[str, Any] = dict(interaction.data or {})
            if interaction.type is discord.InteractionType.modal_submit:
                entries = [row["component"] for row in data["components"]]
                text = "; ".join(str(entry.get("value") or entry.get("values")) for entry in entries)
                await interaction.response.send_message(f"Received {text}")
            elif data.get("component_type") == discord.ComponentType.string_select.value:
                await interaction.response.send_message(f"Selected {', '.join(data['values'])}")
            elif interaction.type is discord.InteractionType.component:
                await interaction.response.send_modal(create_order_form())


def create_order_form() -> discord.ui.Modal:
    sizes = [discord.SelectOption(label="Small", value="s"), discord.SelectOption(label="Large", value="l")]
    extras = [discord.SelectOption(label="Milk", value="m", default=True), discord.SelectOption(label="Ice", value="i")]
    modal = discord.ui.Modal(title="Order", custom_id="order")
    name = discord.ui.TextInput[Any](custom_id="name", max_length=5)
    size = discord.ui.Select[Any](custom_id="size", options=sizes)
    extra = discord.ui.Select[Any](custom_id="extra", options=extras, min_values=0, max_values=2, required=False)
    modal.add_item(discord.ui.Label(text="Name", description="For the cup", component=name))
    modal.add_item(discord.ui.Label(text="Size", component=size))
    modal.add_item(discord.ui.Label(text="Extras", component=extra))
    modal.stop()
    return modal


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(rate_limits=False) as slack:
        yield slack


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    """Yield a local Discord without rate limits."""
    async with DiscordSimulator(rate_limits=False) as server:
        yield server


@pytest.fixture
async def bot(slack: SlackSimulator) -> AsyncIterator[SlackSdkBot]:
    bot = SlackSdkBot(slack)
    yield bot
    await bot.aclose()


@pytest.fixture
async def discord_bot(server: DiscordSimulator, connect: Connect) -> DiscordBot:
    """Return a bot that is connected to the local Discord."""
    bot = DiscordBot()
    await connect(server, bot=bot)
    return bot
