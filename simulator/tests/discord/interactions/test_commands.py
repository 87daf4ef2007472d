"""Message commands, autocompletion and user-installed apps in the local Discord."""

from collections.abc import AsyncIterator
from typing import Any

import discord
import pytest
from discord import app_commands

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, create_intents


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator() as simulator:
        yield simulator


class CommandBot(RecordingClient):
    """discord.py client with an autocompleting slash command and a message command.

    Attributes:
        asked: the interactions of the message command.
    """

    def __init__(self) -> None:
        super().__init__(create_intents())
        self.asked: list[discord.Interaction] = []

        @self.tree.command(name="model", description="Choose")
        async def model(interaction: discord.Interaction, name: str, how: str = "") -> None:
            await interaction.response.send_message(name)

        @model.autocomplete("name")
        async def complete(interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
            return [app_commands.Choice(name=f"{typed}{end}", value=f"{typed}{end}") for end in ("mini", "ni")]

        @self.tree.context_menu(name="Ask about this")
        @app_commands.allowed_contexts(guilds=True, dms=True, private_channels=True)
        @app_commands.allowed_installs(guilds=True, users=True)
        async def ask(interaction: discord.Interaction, message: discord.Message) -> None:
            self.asked.append(interaction)
            await interaction.response.defer(ephemeral=True, thinking=True)
            await interaction.edit_original_response(content=f"{message.author.name} said {message.content}")


async def test_an_option_is_autocompleted(server: DiscordSimulator, connect: Connect) -> None:
    await connect(server, bot=CommandBot())
    assert await server.autocomplete_option("ada", "general", "/model", "name", "ge") == ["gemini", "geni"]
    assert server.messages("general") == []
    assert (server.calls[-1].status, list(server.calls[-1].response)) == (200, ["interaction"])
    for command, option in (("/model", "how"), ("/other", "name")):
        with pytest.raises(ValueError, match=r"no autocompletion|no command"):
            await server.autocomplete_option("ada", "general", command, option, "x")
    with pytest.raises(ValueError, match="needs the option name"):
        await server.run_command("ada", "general", "/model")


async def test_a_message_command_has_content_without_the_intent(server: DiscordSimulator, connect: Connect) -> None:
    bot = CommandBot()
    await connect(server, bot=bot)
    message = await server.post_message("grace", "general", "a secret of mine")
    (response,) = await server.run_message_command("ada", message, "Ask about this")
    await server.wait_for(lambda: response.text == "grace said a secret of mine")
    assert response.ephemeral_to == server.people["ada"]


async def test_an_interaction_has_languages_and_permissions(server: DiscordSimulator, connect: Connect) -> None:
    bot = CommandBot()
    server.locale = "ko"
    server.set_locale("ada", "fr")
    server.deny_permissions("ada", "send_messages")
    await connect(server, bot=bot)
    await server.run_message_command("ada", await server.post_message("ada", "general", "this"), "Ask about this")
    (interaction,) = bot.asked
    assert (interaction.locale, interaction.guild_locale) == (discord.Locale.french, discord.Locale.korean)
    assert not interaction.permissions.send_messages
    assert interaction.permissions.view_channel
    assert interaction.app_permissions.send_messages


@pytest.mark.parametrize("where", ["group", "abroad"])
async def test_a_user_installed_app_has_only_interactions(
    server: DiscordSimulator, connect: Connect, where: str
) -> None:
    bot = CommandBot()
    await connect(server, bot=bot)
    place = (
        server.open_group_dm("us", "ada", "grace")
        if where == "group"
        else server.add_foreign_channel("there", "ada", "grace")
    )
    (response,) = await server.run_message_command(
        "ada", await server.post_message("grace", place, "hello"), "Ask about this"
    )
    await server.wait_for(lambda: response.text == "grace said hello")
    (interaction,) = bot.asked
    assert interaction.is_user_integration()
    assert not interaction.is_guild_integration()
    assert (interaction.guild_id is None) == (where == "group")
    assert not interaction.app_permissions.send_messages
    for number in range(5):
        await interaction.followup.send(str(number), ephemeral=True)
    with pytest.raises(discord.HTTPException) as refused:
        await interaction.followup.send("6", ephemeral=True)
    assert refused.value.code == 40094
    with pytest.raises(discord.Forbidden) as hidden:
        await bot.fetch_channel(int(place.id))
    assert hidden.value.code == 50001
    with pytest.raises(ValueError, match="no command"):
        await server.run_command("ada", place, "/model", name="x")


@pytest.mark.parametrize(
    "command",
    [
        {"name": "this", "type": 3, "description": "menus show none"},
        {"name": "x" * 33, "type": 3},
        {"name": "a", "type": 1, "description": "x", "name_localizations": {"ko": "Two words"}},
        {"name": "a", "type": 1, "description": "x", "description_localizations": {"ko": "x" * 101}},
        {"name": "a", "type": 1, "description": "x", "options": [{"name": "A", "description": "x", "type": 3}]},
        {"name": "a", "type": 1, "description": "x", "options": [{"name": "a", "description": "", "type": 3}]},
        {
            "name": "a",
            "type": 1,
            "description": "x",
            "options": [
                {"name": "a", "description": "x", "type": 3},
                {"name": "b", "description": "x", "type": 3, "required": True},
            ],
        },
    ],
)
async def test_invalid_commands_are_refused(server: DiscordSimulator, connect: Connect, command: Any) -> None:
    bot = await connect(server)
    with pytest.raises(discord.HTTPException) as refused:
        await bot.http.bulk_upsert_global_commands(bot.application_id or 0, [command])
    assert refused.value.code == 50035


async def test_menu_commands_are_limited(server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(server)
    menus: list[Any] = [{"name": f"menu {number}", "type": 3} for number in range(16)]
    with pytest.raises(discord.HTTPException):
        await bot.http.bulk_upsert_global_commands(bot.application_id or 0, menus)
    await bot.http.bulk_upsert_global_commands(bot.application_id or 0, menus[:15])
    assert len(server.commands) == 15


@pytest.mark.parametrize("place", ["", "/guilds/{guild}"])
async def test_a_command_is_created_changed_and_deleted_alone(server: DiscordSimulator, place: str) -> None:
    path = f"/applications/{server.bot_id}{place.format(guild=server.guild_id)}/commands"
    body = {"name": "one", "description": "One"}
    status, created = await call_route(server, "POST", path, body)
    assert (status, created["type"], server.commands) == (201, 1, [created])
    status, second = await call_route(server, "POST", path, body | {"description": "Again"})
    assert (status, second["id"], [command["description"] for command in server.commands]) == (
        200,
        created["id"],
        ["Again"],
    )
    _, other = await call_route(server, "POST", path, {"name": "two", "description": "Two"})
    status, changed = await call_route(server, "PATCH", f"{path}/{created['id']}", {"name": "first"})
    assert (status, changed["name"], changed["description"]) == (200, "first", "Again")
    assert await call_route(server, "GET", f"{path}/{created['id']}") == (200, changed)
    for method, target, refused, code in (
        ("POST", path, {"name": "Loud", "description": "x"}, 50035),
        ("PATCH", f"{path}/{created['id']}", {"name": "two"}, 50035),
        ("PATCH", f"{path}/{created['id']}", {"description": "x" * 101}, 50035),
        ("PATCH", f"{path}/1", {"name": "x"}, 10063),
        ("GET", f"{path}/1", None, 10063),
        ("DELETE", f"{path}/1", None, 10063),
    ):
        assert (await call_route(server, method, target, refused))[1]["code"] == code
    assert (await call_route(server, "DELETE", f"{path}/{created['id']}"))[0] == 204
    assert server.commands == [other]


async def test_a_command_too_many_is_refused(server: DiscordSimulator) -> None:
    path = f"/applications/{server.bot_id}/commands"
    await call_route(server, "PUT", path, [{"name": f"menu {number}", "type": 3} for number in range(15)])
    status, reply = await call_route(server, "POST", path, {"name": "menu", "type": 3})
    assert (status, reply["code"], len(server.commands)) == (400, 30032, 15)
