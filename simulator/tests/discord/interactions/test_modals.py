"""Modals and menus of the local Discord, answered by discord.py."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import discord
import pytest

from chatrig.discord import DiscordMessage, DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, create_intents

LABEL, STRING_SELECT, USER_SELECT, CHECKBOX = 18, 3, 5, 23


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator() as simulator:
        yield simulator


class ReasonModal(discord.ui.Modal, title="Why?"):
    """Modal with a text, a menu and a menu of users, whose values become a message."""

    reason = discord.ui.TextInput[Any](label="Reason", custom_id="reason", min_length=3, max_length=10)
    size = discord.ui.Label[Any](
        text="Size",
        description="Of the answer",
        component=discord.ui.Select(
            custom_id="size", options=[discord.SelectOption(label=f"Size {one}", value=one) for one in ("s", "m")]
        ),
    )
    who = discord.ui.Label[Any](text="Who", component=discord.ui.UserSelect(custom_id="who", required=False))

    async def on_submit(self, interaction: discord.Interaction) -> None:
        size, who = self.size.component, self.who.component
        assert isinstance(size, discord.ui.Select)
        assert isinstance(who, discord.ui.UserSelect)
        names = [user.name for user in who.values]
        await interaction.response.send_message(f"{self.reason.value} {size.values} {names}")


class MenuView(discord.ui.View):
    """View with a menu of options, one of channels, and a button that opens a modal."""

    def __init__(self) -> None:
        super().__init__(timeout=None)

    @discord.ui.select(
        custom_id="menu", max_values=2, options=[discord.SelectOption(label=one, value=one) for one in "abc"]
    )
    async def choose(self, interaction: discord.Interaction, select: discord.ui.Select[Any]) -> None:
        await interaction.response.edit_message(content=f"chosen {select.values}")

    @discord.ui.select(cls=discord.ui.ChannelSelect, custom_id="place")
    async def place(self, interaction: discord.Interaction, select: discord.ui.ChannelSelect[Any]) -> None:
        await interaction.response.edit_message(content=f"in {select.values[0].name}")

    @discord.ui.button(label="Why", custom_id="why")
    async def why(self, interaction: discord.Interaction, button: discord.ui.Button[Any]) -> None:
        await interaction.response.send_modal(ReasonModal())


class FormBot(RecordingClient):
    """discord.py client with commands that open a modal and post menus."""

    def __init__(self) -> None:
        super().__init__(create_intents())

        @self.tree.command(name="form", description="Open a form")
        async def form(interaction: discord.Interaction) -> None:
            await interaction.response.send_modal(ReasonModal())

        @self.tree.command(name="menu", description="Show a menu")
        async def menu(interaction: discord.Interaction) -> None:
            await interaction.response.send_message("choose", view=MenuView())


async def test_a_submitted_modal_reaches_the_bot_with_all_its_values(
    server: DiscordSimulator, connect: Connect
) -> None:
    await connect(server, bot=FormBot())
    assert await server.run_command("ada", "general", "/form") == []
    (modal,) = server.modals("ada")
    assert (modal.title, list(modal.inputs), modal.inputs["size"]["description"]) == (
        "Why?",
        ["reason", "size", "who"],
        "Of the answer",
    )
    ada = server.people["ada"].id
    for values, error in (
        ({"size": ["s"]}, "Reason is required"),
        ({"reason": "no", "size": ["s"]}, "3 to 10 characters"),
        ({"reason": "because", "size": ["x"]}, "x is not an option of Size"),
        ({"reason": "because"}, "Size takes 1 to 1"),
        ({"reason": "because", "other": "x"}, "no input other"),
    ):
        with pytest.raises(ValueError, match=error):
            await server.submit_modal(modal, values)
    (response,) = await server.submit_modal(modal, {"reason": "because", "size": ["m"], "who": [ada]})
    assert response.text == "because ['m'] ['ada']"
    assert server.modals("ada") == []
    with pytest.raises(ValueError, match="not open"):
        await server.submit_modal(modal, {})


async def test_a_button_opens_a_modal_that_the_user_dismisses(server: DiscordSimulator, connect: Connect) -> None:
    await connect(server, bot=FormBot())
    (menu,) = await server.run_command("ada", "general", "/menu")
    await server.click_button("ada", menu, "why")
    (modal,) = server.modals("ada")
    assert server.modals("grace") == []
    server.close_modal(modal)
    assert server.modals("ada") == []
    await server.click_button("ada", menu, "why")
    (modal,) = server.modals("ada")
    (response,) = await server.submit_modal(modal, {"reason": "because", "size": ["s"]})
    created = next(
        event for event in server.events if event.name == "MESSAGE_CREATE" and event.data["id"] == response.id
    )
    opener = created.data["interaction_metadata"]["triggering_interaction_metadata"]
    assert (opener["type"], opener["interacted_message_id"]) == (3, menu.id)


async def test_values_of_a_menu_reach_the_bot(server: DiscordSimulator, connect: Connect) -> None:
    await connect(server, bot=FormBot())
    (menu,) = await server.run_command("ada", "general", "/menu")
    await server.select_values("ada", menu, "menu", ["a", "c"])
    assert menu.text == "chosen ['a', 'c']"
    await server.select_values("ada", menu, "place", [server.channels["random"].id])
    assert menu.text == "in random"
    for name, values in (("menu", ["a", "b", "c"]), ("menu", ["z"]), ("menu", []), ("why", ["a"]), ("no", [])):
        with pytest.raises(ValueError, match=name):
            await server.select_values("ada", menu, name, values)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"title": "x" * 46}, "data.title"),
        ({"custom_id": ""}, "data.custom_id"),
        ({"components": []}, "data.components"),
        ({"components": [{"type": 1, "components": []}]}, "data.components.0.components"),
        ({"components": [{"type": 1, "components": [{"type": 2, "style": 1}]}]}, "data.components.0.components.0.type"),
        (
            {"components": [{"type": 1, "components": [{"type": 4, "style": 1, "custom_id": "a"}]}]},
            "data.components.0.components.0.label",
        ),
        ({"components": [{"type": 10, "content": "text"}] * 6}, "data.components"),
        ({"components": [{"type": LABEL, "label": "x"}]}, "data.components.0.component"),
        ({"components": [{"type": 99}]}, "data.components.0.type"),
    ],
)
async def test_a_wrong_modal_is_refused_with_50035(change: dict[str, Any], path: str, server: DiscordSimulator) -> None:
    good = {"custom_id": "m", "title": "Why?", "components": [{"type": 10, "content": "text"}]}
    async with aiohttp.ClientSession() as session, FormClient(server, session) as client:
        await client.start("form")
        status, body = await client.answer({"type": 9, "data": good | change})
        assert (status, body["code"]) == (400, 50035)
        errors = body["errors"]
        for name in path.split("."):
            errors = errors[name]
        assert errors["_errors"]
        assert await client.answer({"type": 9, "data": good}) == (204, None)


async def test_a_modal_cannot_answer_a_modal(server: DiscordSimulator) -> None:
    modal = {"type": 9, "data": {"custom_id": "m", "title": "Why?", "components": [{"type": 10, "content": "text"}]}}
    async with aiohttp.ClientSession() as session, FormClient(server, session) as client:
        await client.start("form")
        assert await client.answer(modal) == (204, None)
        (opened,) = server.modals("ada")
        client.watch(server.submit_modal(opened, {}))
        await client.next_interaction()
        status, body = await client.answer(modal)
        assert (status, body["code"]) == (400, 50035)
        assert await client.answer({"type": 4, "data": {"content": "done"}}) == (204, None)


class FormClient:
    """Client without a library: registers a command, answers interactions by HTTP."""

    def __init__(self, server: DiscordSimulator, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session
        self._tasks: list[asyncio.Task[list[DiscordMessage]]] = []
        self._interaction: dict[str, Any] = {}
        self._seen = 0

    async def __aenter__(self) -> "FormClient":
        socket = await self._session.ws_connect(self._server.gateway_url)
        identify = {"token": self._server.bot_token, "intents": 0, "properties": {}}
        await socket.send_json({"op": 2, "d": identify})
        await self._server.wait_until_connected()
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*self._tasks)

    async def start(self, command: str) -> None:
        url = f"{self._server.api_url}/applications/{self._server.bot_id}/commands"
        headers = {"Authorization": f"Bot {self._server.bot_token}"}
        async with self._session.put(url, json=[{"name": command, "description": "x"}], headers=headers) as response:
            assert response.status == 200
        self.watch(self._server.run_command("ada", "general", command))
        await self.next_interaction()

    def watch(self, action: Any) -> None:
        self._tasks.append(asyncio.create_task(action))

    async def next_interaction(self) -> None:
        def find() -> list[dict[str, Any]]:
            return [e.data for e in self._server.events if e.name == "INTERACTION_CREATE"][self._seen :]

        self._interaction = (await self._server.wait_for(find))[0]
        self._seen += 1

    async def answer(self, body: dict[str, Any]) -> tuple[int, Any]:
        about = self._interaction
        url = f"{self._server.api_url}/interactions/{about['id']}/{about['token']}/callback"
        async with self._session.post(url, json=body) as response:
            return response.status, await response.json() if response.status != 204 else None
