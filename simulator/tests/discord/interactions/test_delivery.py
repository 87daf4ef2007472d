"""Commands and buttons of the local Discord, answered by discord.py."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, create_intents


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator() as simulator:
        yield simulator


@pytest.fixture
async def fast_server() -> AsyncIterator[DiscordSimulator]:
    """Yield a local Discord that runs ten times as fast: 3 s take 300 ms."""
    async with DiscordSimulator(speed=10) as simulator:
        yield simulator


class AnsweringBot(RecordingClient):
    """discord.py client that calls the test's `answer` for each `/ask`.

    Attributes:
        errors: the errors of the command.
    """

    def __init__(self, answer: Any) -> None:
        super().__init__(create_intents())
        self.errors: asyncio.Queue[BaseException | None] = asyncio.Queue()

        @self.tree.command(name="ask", description="Ask")
        async def ask(interaction: discord.Interaction, what: str = "") -> None:
            await answer(interaction, what)

        @self.tree.error
        async def record_error(_: discord.Interaction, error: discord.app_commands.AppCommandError) -> None:
            await self.errors.put(error.__cause__)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.component:
            await interaction.response.edit_message(content=f"{interaction.user.name} has pressed", view=None)


async def test_a_synced_command_is_delivered_with_its_options(server: DiscordSimulator, connect: Connect) -> None:
    async def answer(interaction: discord.Interaction, what: str) -> None:
        await interaction.response.send_message(f"{interaction.user.name} asks {what}")

    await connect(server, bot=AnsweringBot(answer))
    assert [(command["name"], command["description"]) for command in server.commands] == [("ask", "Ask")]
    (response,) = await server.run_command("ada", "general", "/ask", what="why")
    assert (response.text, response.ephemeral_to, response.author.id) == ("ada asks why", None, server.bot_id)
    assert server.messages("general") == [response]
    with pytest.raises(ValueError, match="no command /reset"):
        await server.run_command("ada", "general", "/reset")
    with pytest.raises(ValueError, match="/ask has no option why"):
        await server.run_command("ada", "general", "/ask", why="so")


async def test_syncing_again_keeps_the_ids_and_replaces_the_rest(server: DiscordSimulator, connect: Connect) -> None:
    async def answer(interaction: discord.Interaction, what: str) -> None: ...

    bot = await connect(server, bot=AnsweringBot(answer))
    (before,) = server.commands
    await bot.tree.sync()
    (after,) = server.commands
    assert after["id"] == before["id"]
    bot.tree.clear_commands(guild=None)
    await bot.tree.sync()
    assert server.commands == []


async def test_a_deferred_ephemeral_response_is_edited_for_one_user(server: DiscordSimulator, connect: Connect) -> None:
    go_on = asyncio.Event()

    async def answer(interaction: discord.Interaction, what: str) -> None:
        await interaction.response.defer(ephemeral=True, thinking=True)
        await go_on.wait()
        await interaction.edit_original_response(content="Done.")
        await interaction.followup.send("And more.")

    await connect(server, bot=AnsweringBot(answer))
    responses = await server.run_command("ada", server.open_dm("ada"), "/ask")
    (response,) = responses
    assert response.loading
    assert response.ephemeral_to == server.people["ada"]
    go_on.set()
    await server.wait_for(lambda: len(responses) == 2)
    assert [version.text for version in response.versions] == ["", "Done."]
    assert response.flags == discord.MessageFlags(ephemeral=True).value
    assert not response.edited
    assert (responses[1].text, responses[1].ephemeral_to) == ("And more.", None)
    events = [event for event in server.events if event.name.startswith("MESSAGE") and event.data["id"] == response.id]
    assert events == []


async def test_a_follow_up_replaces_a_deferred_response(server: DiscordSimulator, connect: Connect) -> None:
    async def answer(interaction: discord.Interaction, what: str) -> None:
        await interaction.response.defer(thinking=True)
        await interaction.followup.send("Here.")

    await connect(server, bot=AnsweringBot(answer))
    responses = await server.run_command("ada", "general", "/ask")
    await server.wait_for(lambda: responses[0].text)
    assert [(message.text, message.loading) for message in responses] == [("Here.", False)]


async def test_a_late_response_is_refused_and_discord_reports_an_error(
    fast_server: DiscordSimulator, connect: Connect
) -> None:
    async def answer(interaction: discord.Interaction, what: str) -> None:
        await asyncio.sleep(0.4)
        await interaction.response.send_message("too late")

    bot = AnsweringBot(answer)
    await connect(fast_server, bot=bot)
    began = monotonic()
    (response,) = await fast_server.run_command("ada", "general", "/ask")
    assert 0.3 <= monotonic() - began < 3
    assert (response.text, response.author.name) == ("The application did not respond", "discord")
    assert response.ephemeral_to == fast_server.people["ada"]
    assert [message.text for message in fast_server.messages("general")] == ["The application did not respond"]
    refused = await asyncio.wait_for(bot.errors.get(), 30)
    assert isinstance(refused, discord.NotFound)
    assert refused.code == 10062


async def test_a_disconnected_bot_is_reported_at_once(server: DiscordSimulator, connect: Connect) -> None:
    async def answer(interaction: discord.Interaction, what: str) -> None: ...

    bot = await connect(server, bot=AnsweringBot(answer))
    await server.invalidate_sessions()
    (response,) = await server.run_command("ada", "general", "/ask")
    assert response.text == "The application did not respond"
    await server.wait_for(lambda: server.connection_count)
    assert not bot.is_closed()


async def test_an_interaction_is_acknowledged_once_and_its_token_expires(
    server: DiscordSimulator, connect: Connect
) -> None:
    tokens: list[discord.Interaction] = []

    async def answer(interaction: discord.Interaction, what: str) -> None:
        tokens.append(interaction)
        await interaction.response.send_message("once")

    bot = await connect(server, bot=AnsweringBot(answer))
    await server.run_command("ada", "general", "/ask")
    adapter = tokens[0].response
    adapter._response_type = None  # discord.py does not respond twice
    with pytest.raises(discord.HTTPException) as refused:
        await adapter.send_message("twice")
    assert refused.value.code == 40060
    hook = discord.http.Route("POST", "/webhooks/{app}/{token}", app=bot.application_id, token="none")
    with pytest.raises(discord.HTTPException) as unknown:
        await bot.http.request(hook, json={"content": "x"})
    assert (unknown.value.status, unknown.value.code) == (401, 50027)


async def test_a_button_updates_its_message(server: DiscordSimulator, connect: Connect) -> None:
    async def answer(interaction: discord.Interaction, what: str) -> None: ...

    bot = await connect(server, bot=AnsweringBot(answer))
    view = discord.ui.View(timeout=None)
    view.add_item(discord.ui.Button(label="Stop", custom_id="stop:1"))
    await bot.get_simulator_channel(server, "general").send("working", view=view)
    (message,) = server.messages("general")
    assert await server.click_button("grace", message, "stop:1") == []
    assert message.text == "grace has pressed"
    with pytest.raises(ValueError, match="no button stop:1"):
        await server.click_button("grace", message, "stop:1")


@pytest.mark.parametrize(
    "command",
    [
        {"name": "Loud", "description": "x", "type": 1},
        {"name": "two words", "description": "x", "type": 1},
        {"name": "mute", "description": "", "type": 1},
        {"name": "mute", "description": "x" * 101, "type": 1},
    ],
)
async def test_an_invalid_command_is_refused(server: DiscordSimulator, connect: Connect, command: Any) -> None:
    bot = await connect(server)
    with pytest.raises(discord.HTTPException) as refused:
        await bot.http.bulk_upsert_global_commands(bot.application_id or 0, [command])
    assert refused.value.code == 50035
    twice: list[Any] = [{"name": "same", "description": "x", "type": 1}] * 2
    with pytest.raises(discord.HTTPException):
        await bot.http.bulk_upsert_global_commands(bot.application_id or 0, twice)
    assert server.commands == []
