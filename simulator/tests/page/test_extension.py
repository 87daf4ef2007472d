"""The page alone, with the process of a bot, and with the additions of a program."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from chatrig.client.extension import Sessions, SimulatorExtension
from chatrig.client.managed_bot import BotState
from chatrig.discord import DiscordSimulator
from chatrig.page import PageServer
from chatrig.slack import SlackSimulator
from tests.page.conftest import TIMEOUT_MILLISECONDS, check_accessibility

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=TIMEOUT_MILLISECONDS)

SCRIPT = """
import { store } from "/static/connection.js";
import { h, updateOnlyChild } from "/static/dom.js";
import { extension } from "/static/extension.js";

const getCups = () => store.get("tea")?.cups ?? 0;
const brew = (runAction) => runAction("brew", { cups: 2 });
const renderCups = (cups) => h("p", {}, `${cups} cups`);
const render = (runAction) => h("button", { onclick: () => brew(runAction) }, `Brew after ${getCups()}`);
const update = (content) => updateOnlyChild(content, getCups(), renderCups);

extension.tabs.push({ key: "tea", label: "Tea", count: getCups, update });
extension.controls.push({ read: getCups, render });
extension.switches.push({ label: "Strong tea", description: "Two cups", isActive: () => getCups() > 0, toggle: brew });
extension.updates.push((views) => { document.getElementById("top").dataset.pane = views.activePane.key; });
extension.getPrompts = () => ["Tea, please."];
"""


class TeaExtension(SimulatorExtension):
    """Extension with a script, whose action `brew` adds cups of tea."""

    title = "Tea"

    def __init__(self, folder: Path) -> None:
        self.static_folder = folder
        (folder / "extension.js").write_text(SCRIPT)
        (folder / "extension.css").write_text("#top { border-top: 3px solid green }")
        self.actions = {"brew": self.brew}
        self.cups = 0
        self._changed = asyncio.Event()

    def set_up(self, app: web.Application) -> None:
        app.router.add_get("/tea", self.serve_tea)

    def create_view(self, sessions: Sessions) -> Mapping[str, Any]:
        return {"tea": {"cups": self.cups, "user": sessions["slack"].user.name}}

    async def wait_for_change(self) -> None:
        await self._changed.wait()

    async def brew(self, sessions: Sessions, action: Mapping[str, Any]) -> str:
        self.cups += action["cups"]
        self._changed.set()
        return f"{sessions['discord'].user.name} has tea."

    async def serve_tea(self, _: web.Request) -> web.Response:
        return web.Response(text=str(self.cups))


class RecordingBot:
    """Process of a bot that records what is done to it."""

    def __init__(self) -> None:
        self.state: BotState = "running"
        self.exit_reason = self.log_tail = ""
        self.actions: list[str] = []
        self._changed = asyncio.Event()

    def end(self) -> None:
        self.state, self.exit_reason, self.log_tail = "ended", "The token is wrong.", "the last line"
        self._changed.set()

    async def kill(self) -> None:
        self.actions.append("kill")

    async def restart(self) -> None:
        self.actions.append("restart")
        self.state, self.exit_reason, self.log_tail = "running", "", ""

    async def wait_for_change(self) -> None:
        await self._changed.wait()


@asynccontextmanager
async def open_page(
    browser: Browser, extension: SimulatorExtension | None = None
) -> AsyncIterator[tuple[Page, SlackSimulator]]:
    """Serve a page without a connected bot and open it; its console must stay empty."""
    async with SlackSimulator() as slack, DiscordSimulator() as discord:
        server = PageServer(slack, discord, extension)
        async with server.serve(0):
            page = await browser.new_page(viewport={"width": 1440, "height": 860}, reduced_motion="reduce")
            page.set_default_timeout(TIMEOUT_MILLISECONDS)
            complaints: list[str] = []
            page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(server.address)
            await expect(page.locator("#slack .title")).to_contain_text("@bot")
            yield page, slack
            await page.close()
            assert complaints == []


async def test_the_page_works_without_an_extension_and_a_process_of_the_bot(browser: Browser) -> None:
    async with open_page(browser) as (page, slack):
        await expect(page).to_have_title("chatrig simulator")
        await expect(page.get_by_role("tab")).to_have_text(["API calls", "Faults"])
        await expect(page.locator("#settings .state")).to_have_count(0)
        await page.locator("#slack").get_by_role("button", name="Say hello").click()
        await expect(page.locator("#slack .messages")).to_contain_text("Hello! Who are you?")
        await page.get_by_role("tab", name="Faults").click()
        await expect(page.locator("#inspector legend")).to_have_text(["Slack", "Discord"])
        await page.get_by_role("button", name="429").first.click()
        await expect(page.get_by_role("tab", name="Faults")).to_have_text("Faults1")
        assert slack.faults.has_pending("rate_limit")
        await check_accessibility(page)


async def test_the_page_shows_kills_and_restarts_the_process_of_the_bot(browser: Browser) -> None:
    extension = SimulatorExtension()
    extension.bot = bot = RecordingBot()
    async with open_page(browser, extension) as (page, _):
        await expect(page.locator("#settings .state")).to_have_text("running")
        await page.get_by_role("tab", name="Faults").click()
        await page.get_by_role("button", name="Kill the bot").click()
        await page.get_by_role("button", name="Restart").click()
        bot.end()
        await expect(page.locator("#bot-error")).to_contain_text("The token is wrong.")
        await page.locator("#bot-error summary").click()
        await expect(page.locator("#bot-error pre")).to_have_text("the last line")
        await page.get_by_role("button", name="Start again").click()
        await expect(page.locator("#bot-error")).to_be_hidden()
        assert bot.actions == ["kill", "restart", "restart"]


async def test_an_extension_adds_a_tab_controls_switches_and_texts(browser: Browser, tmp_path: Path) -> None:
    extension = TeaExtension(tmp_path)
    async with open_page(browser, extension) as (page, _):
        await expect(page).to_have_title("Tea simulator")
        await expect(page.locator("#top")).to_have_css("border-top-color", "rgb(0, 128, 0)")
        await expect(page.locator("#top")).to_have_attribute("data-pane", "slack")
        await expect(page.get_by_role("tab")).to_have_text(["Tea", "API calls", "Faults"])
        await expect(page.get_by_role("tabpanel")).to_have_text("0 cups")
        await expect(page.locator("#discord .welcome").get_by_role("button")).to_have_text(["Tea, please."])
        await page.get_by_role("button", name="Brew after 0").click()
        await expect(page.locator("#toasts")).to_contain_text("ada has tea.")
        await expect(page.get_by_role("tabpanel")).to_have_text("2 cups")
        await page.get_by_role("tab", name="Faults").click()
        await page.get_by_role("button", name="Strong tea").click()
        await expect(page.get_by_role("tab", name="Tea")).to_have_text("Tea4")
        await expect(page.get_by_role("button", name="Strong tea")).to_have_attribute("aria-pressed", "true")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{page.url}tea") as answer:
                assert await answer.text() == "4"
            async with session.get(f"{page.url}tea", headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
