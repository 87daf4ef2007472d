"""Menus and pickers of messages on the simulator page, with discord.py and Bolt."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import discord
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from chatrig.discord import DiscordSimulator
from chatrig.page import PageServer
from chatrig.slack import SlackSimulator
from tests.discord.conftest import RecordingClient, create_intents, patch_addresses
from tests.page.conftest import TIMEOUT_MILLISECONDS, check_accessibility, open_place
from tests.slack.conftest import create_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=TIMEOUT_MILLISECONDS)


class AllMenusView(discord.ui.View):
    """Discord menus of each kind; the message then shows the selected objects' names."""

    def __init__(self) -> None:
        super().__init__(timeout=None)
        for select in (
            discord.ui.UserSelect[Any](custom_id="user", placeholder="Whom?"),
            discord.ui.RoleSelect[Any](custom_id="role", placeholder="Which role?"),
            discord.ui.ChannelSelect[Any](
                custom_id="channel", placeholder="Where?", channel_types=[discord.ChannelType.text], max_values=2
            ),
            discord.ui.MentionableSelect[Any](custom_id="mentionable", placeholder="Who or which role?", max_values=3),
            discord.ui.Select[Any](
                custom_id="text",
                placeholder="Which?",
                min_values=0,
                max_values=2,
                options=[discord.SelectOption(label=one, default=one == "red") for one in ("red", "blue", "green")],
            ),
        ):
            select.callback = self.show_values  # type: ignore[method-assign]
            self.add_item(select)

    async def show_values(self, interaction: discord.Interaction) -> None:
        data: Any = interaction.data
        (select,) = (item for item in self.children if getattr(item, "custom_id", "") == data["custom_id"])
        values: list[Any] = getattr(select, "values", [])
        kinds = [f"{type(value).__name__} {getattr(value, 'name', value)}" for value in values]
        await interaction.response.edit_message(content=f"{data['custom_id']}: {', '.join(kinds) or 'none'}.")


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


def create_element(kind: str, placeholder: str = "", **fields: Any) -> dict[str, Any]:
    options = {"placeholder": plain(placeholder)} if placeholder else {}
    return {"type": kind, "action_id": kind, **options, **fields}


def create_section(text: str, element: dict[str, Any]) -> dict[str, Any]:
    return {"type": "section", "text": plain(text), "accessory": element}


OPTIONS = [{"text": plain(name.title()), "value": name} for name in ("milk", "ice")]
BLOCKS = [
    create_section("Who is on call?", create_element("users_select", "Select a user")),
    create_section("Who else?", create_element("multi_users_select", "Select users")),
    create_section("With what?", create_element("checkboxes", options=OPTIONS)),
    {
        "type": "actions",
        "elements": [
            create_element("conversations_select", "Select a conversation"),
            create_element("channels_select", "Select a channel"),
            create_element("datepicker", "From which day?", initial_date="2026-01-31"),
            create_element("timepicker", "At what time?"),
            create_element("datetimepicker"),
        ],
    },
]


@dataclass
class Stage:
    """Simulator page with a bot on each platform, and helpers for their menus."""

    slack: SlackSimulator
    discord: DiscordSimulator
    bot: RecordingClient
    page: Page
    payloads: asyncio.Queue[dict[str, Any]]

    def get_field(self, on: str, label: str) -> Locator:
        return self.page.locator(f"#{on} .messages").get_by_label(label, exact=True)

    async def choose_several(self, on: str, label: str, *names: str, before: str = "") -> None:
        """Select exactly these options in a menu with several values, on the page.

        Args:
            on: "slack" or "discord".
            label: the label of the menu.
            names: the labels of the options.
            before: the text of the current selection; "" if there is none.
        """
        await self.page.locator(f"#{on} .choices summary", has_text=before or label).click()
        form = self.get_field(on, label)
        for box in await form.get_by_role("checkbox").all():
            await box.uncheck()
        for name in names:
            await form.get_by_label(name, exact=True).check()
        await form.get_by_role("button", name="Select").click()

    async def get_action(self) -> dict[str, Any]:
        """Return the next action that Bolt receives, with the state of all its inputs."""
        payload = await asyncio.wait_for(self.payloads.get(), TIMEOUT_MILLISECONDS / 1000)
        action: dict[str, Any] = payload["actions"][0]
        return action | {"state": {k: v for part in payload["state"]["values"].values() for k, v in part.items()}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(browser: Browser) -> AsyncIterator[Stage]:
    payloads = asyncio.Queue[dict[str, Any]]()
    async with SlackSimulator(rate_limits=False) as slack, DiscordSimulator(rate_limits=False) as server:
        app = AsyncApp(client=create_client(slack))

        @app.action(re.compile(".*"))
        async def record_action(ack: Any, body: dict[str, Any]) -> None:
            await ack()
            await payloads.put(body)

        handler = AsyncSocketModeHandler(app, slack.app_token)
        await handler.connect_async()
        bot = RecordingClient(create_intents("message_content", "members"))
        context = await browser.new_context(viewport={"width": 1440, "height": 860}, reduced_motion="reduce")
        context.set_default_timeout(TIMEOUT_MILLISECONDS)
        server.assign_role("ada", "editors")
        with pytest.MonkeyPatch.context() as patch:
            patch_addresses(server, patch)
            task = asyncio.create_task(bot.start(server.bot_token))
            await server.wait_until_connected()
            await asyncio.wait_for(bot.wait_until_ready(), 30)
            served = PageServer(slack, server)
            async with served.serve(0):
                page = await context.new_page()
                complaints: list[str] = []
                page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
                page.on("pageerror", lambda error: complaints.append(str(error)))
                await page.goto(served.address)
                await open_place(page, "discord", "general")
                await open_place(page, "slack", "general")
                await bot.get_simulator_channel(server, "general").send("Choose.", view=AllMenusView())
                await create_client(slack).chat_postMessage(
                    channel=slack.channels["general"].id, text="Choose.", blocks=BLOCKS
                )
                yield Stage(slack, server, bot, page, payloads)
                await context.close()
            await bot.close()
            await asyncio.gather(task, return_exceptions=True)
        await handler.close_async()
    assert complaints == []


async def test_users_roles_and_channels_are_selected_in_discord(stage: Stage) -> None:
    message = stage.page.locator("#discord .messages .message").last
    await stage.get_field("discord", "Whom?").select_option(label="grace")
    await expect(message).to_contain_text("user: Member grace.")
    await stage.get_field("discord", "Which role?").select_option(label="@editors")
    await expect(message).to_contain_text("role: Role editors.")
    await stage.choose_several("discord", "Where?", "#general", "#random")
    await expect(message).to_contain_text("channel: AppCommandChannel general, AppCommandChannel random.")
    await stage.choose_several("discord", "Who or which role?", "ada", "@editors")
    await expect(message).to_contain_text("mentionable: Member ada, Role editors.")
    await stage.choose_several("discord", "Which?", "blue", "green", before="red")
    await expect(message).to_contain_text("text: str blue, str green.")
    await stage.choose_several("discord", "Which?", before="red")
    await expect(message).to_contain_text("text: none.")
    event = next(e for e in stage.discord.events if e.name == "INTERACTION_CREATE")
    grace = stage.discord.people["grace"].id
    assert event.data["data"]["resolved"]["users"][grace]["username"] == "grace"
    assert event.data["data"]["resolved"]["members"].keys() == {grace}


async def test_a_selection_that_discord_refuses_is_explained(stage: Stage) -> None:
    await stage.choose_several("discord", "Where?")
    await expect(stage.page.locator("#discord .hint")).to_contain_text("takes 1 to 2 different values")
    await expect(stage.page.locator("#discord .choices[open]")).to_have_count(1)
    await stage.page.keyboard.press("Escape")
    await expect(stage.page.locator("#discord .choices[open]")).to_have_count(0)


async def test_users_and_conversations_are_selected_in_slack(stage: Stage) -> None:
    slack, ids = stage.slack, {name: person.id for name, person in stage.slack.people.items()}
    await stage.get_field("slack", "Select a user").select_option(label="grace")
    action = await stage.get_action()
    assert (action["type"], action["selected_user"]) == ("users_select", ids["grace"])
    await stage.choose_several("slack", "Select users", "ada", "linus")
    action = await stage.get_action()
    assert action["selected_users"] == [ids["ada"], ids["linus"]]
    assert action["state"]["users_select"]["selected_user"] == ids["grace"]
    await expect(stage.page.locator("#slack .choices summary").first).to_have_text("ada, linus")
    await stage.get_field("slack", "Select a conversation").select_option(label="@bot")
    assert (await stage.get_action())["selected_conversation"] == slack.open_dm("ada").id
    await stage.get_field("slack", "Select a channel").select_option(label="#random")
    assert (await stage.get_action())["selected_channel"] == slack.channels["random"].id
    await stage.choose_several("slack", "Choose an option", "Milk")
    assert [option["value"] for option in (await stage.get_action())["selected_options"]] == ["milk"]
    await expect(stage.get_field("slack", "Select a user")).to_have_value(ids["grace"])


async def test_dates_and_times_are_picked_in_slack(stage: Stage) -> None:
    day = stage.get_field("slack", "From which day?")
    await expect(day).to_have_value("2026-01-31")
    await day.fill("2026-02-01")
    await day.press("Enter")
    assert (await stage.get_action())["selected_date"] == "2026-02-01"
    await stage.get_field("slack", "At what time?").fill("09:30")
    await stage.page.get_by_role("button", name="At what time?: send").click()
    assert (await stage.get_action())["selected_time"] == "09:30"
    moment = stage.get_field("slack", "Select a date and time")
    await moment.fill("2026-02-01T09:30")
    await moment.press("Enter")
    action = await stage.get_action()
    assert action["selected_date_time"] == int(datetime(2026, 2, 1, 9, 30).timestamp())
    assert action["state"]["timepicker"]["selected_time"] == "09:30"
    await expect(moment).to_have_value("2026-02-01T09:30")


async def test_an_entry_that_is_not_sent_survives_a_change_of_its_message(stage: Stage) -> None:
    message = stage.slack.messages("general")[0]
    time = stage.get_field("slack", "At what time?")
    await time.fill("23:15")
    await stage.slack.add_reaction("grace", message, "eyes")
    await expect(stage.page.locator("#slack .reaction")).to_be_visible()
    await expect(time).to_have_value("23:15")


async def test_components_v2_are_shown_in_discord(stage: Stage) -> None:
    container = discord.ui.Container[Any](
        discord.ui.TextDisplay("# Report"),
        discord.ui.Separator(),
        discord.ui.Section("**fine** so far", accessory=discord.ui.Button(label="More", custom_id="more")),
        discord.ui.MediaGallery(discord.MediaGalleryItem("https://a.example/a.png", description="A chart")),
    )
    await stage.bot.get_simulator_channel(stage.discord, "random").send(
        view=discord.ui.LayoutView().add_item(container)
    )
    await open_place(stage.page, "discord", "random")
    embeds = stage.page.locator("#discord .messages .embed")
    await expect(embeds.locator("h1")).to_have_text("Report")
    await expect(embeds.locator("hr")).to_have_count(1)
    await expect(embeds.locator("strong")).to_have_text("fine")
    await expect(embeds.get_by_role("link", name="A chart")).to_have_attribute("href", "https://a.example/a.png")
    await expect(stage.page.locator("#discord").get_by_role("button", name="More", exact=True)).to_be_visible()
    await open_place(stage.page, "discord", "general")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_menus(stage: Stage, scheme: str) -> None:
    await stage.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for on in ("slack", "discord"):
        if not await stage.page.locator(f"#{on} .choices[open]").count():
            await stage.page.locator(f"#{on} .choices summary").first.click()
    for width in (1440, 390):
        await stage.page.set_viewport_size({"width": width, "height": 860})
        await check_accessibility(stage.page)
