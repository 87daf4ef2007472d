"""First minute on the simulator page, in a real browser: tour, model, key."""

import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from bot.simulator.tour import STEPS
from chatrig.models import ScriptedOpenAI
from tests.acceptance.page.conftest import ROOT, TIMEOUT_MILLISECONDS, find_chromium, run_simulator
from tests.processes.fork_server import ForkServer
from tests.processes.procfile import create_clean_environment

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=TIMEOUT_MILLISECONDS)

KEY = "sk-good-0123456789"

TINY = "local/smollm2-135m"

#: Script that adds up the layout shifts of the page: its score in `window.shift`.
OBSERVE_SHIFTS = """
window.shift = 0
new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.shift += entry.value })
  .observe({ type: "layout-shift", buffered: true })
"""

AGENT = """
from google.adk.agents import LlmAgent

root_agent = LlmAgent(name="mine", model="{model}", instruction="Say hello.")
"""


@asynccontextmanager
async def open_page(
    browser: Browser,
    fork_server: ForkServer,
    folder: Path,
    patch: pytest.MonkeyPatch,
    agent: str = "",
    width: int = 1440,
) -> AsyncIterator[tuple[Page, list[str]]]:
    """Run a simulator without a model key; yield its page once the bot is connected, and the printed lines.

    The bot's OpenAI server is a local one that accepts only the key `KEY`.

    Args:
        folder: the working folder and `DATA_DIR`.
        agent: folder of an agent; empty for the built-in one.
    """
    find_chromium()
    for name in os.environ.keys() - create_clean_environment().keys():
        patch.delenv(name)
    patch.setattr(sys, "executable", str(fork_server.python))
    patch.chdir(folder)
    async with ScriptedOpenAI(lambda request: f"You said: {request.text}", api_key=KEY) as model:
        settings = {"PYTHONPATH": str(ROOT), "DATA_DIR": str(folder), "OPENAI_BASE_URL": model.base_url, "AGENT": agent}
        for name, value in settings.items():
            patch.setenv(name, value)
        async with run_simulator(agent) as (address, lines):
            page = await browser.new_page(viewport={"width": width, "height": 860}, reduced_motion="reduce")
            page.set_default_timeout(TIMEOUT_MILLISECONDS)
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.add_init_script(OBSERVE_SHIFTS)
            await page.goto(address)
            await expect(page.locator("#bar .settings .state")).to_have_class("state running", timeout=90_000)
            yield page, lines
            await page.close()
            assert complaints == []


@pytest_asyncio.fixture(loop_scope="module")
async def page(
    browser: Browser, fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Page]:
    async with open_page(browser, fork_server, tmp_path, monkeypatch) as (page, _):
        yield page


def list_files_with(text: str, folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def find_current_step(page: Page) -> Locator:
    return page.locator("#setup li button[aria-current=step]")


async def take_step(page: Page, title: str, pane: str, end: str) -> None:
    """Click a step of the tour in the pane that was used last, and wait for the text `end`."""
    await page.locator("#setup li button", has_text=title).click()
    await expect(page.locator(f"#{pane} .messages")).to_contain_text(end)


async def test_without_a_key_the_first_click_shows_a_tool_and_an_approval(page: Page) -> None:
    bar = page.locator("#setup")
    await expect(bar).to_contain_text(
        f"The tour's steps are scripted. All else is answered by {TINY}, a tiny local model"
    )
    await expect(bar.get_by_role("button", name="Paste a key…")).to_be_visible()
    await expect(find_current_step(page)).to_have_text("1. Approval")
    slack = page.locator("#slack .messages")
    await take_step(page, "Approval", "slack", "Approve refund_order?")
    await expect(slack.locator("td", has_text="Coffee, 2 bags")).to_be_visible()
    await expect(page.locator(".inspector")).to_contain_text("Refund order 1042.")


@pytest.mark.local_model
async def test_typed_messages_between_steps_are_answered_by_the_local_model(page: Page) -> None:
    slack = page.locator("#slack .messages")
    await page.fill("#slack-line", "What is the capital of France?")
    await page.press("#slack-line", "Enter")
    await expect(slack.locator(".thumb").first).to_be_visible()
    await expect(slack).not_to_contain_text("cripted")
    await take_step(page, "Report", "slack", "Plan the tasting on the 12th")
    await page.locator(".inspector .turn", has_text="capital").click()
    await expect(page.locator(".inspector .turn", has_text="capital")).to_contain_text(TINY)


@pytest.mark.parametrize("pane", ["slack", "discord"])
async def test_the_tour_stays_on_a_step_until_its_result_appears(page: Page, pane: str) -> None:
    messages, hint = page.locator(f"#{pane} .messages"), page.locator(f"#{pane} .hint")
    await page.focus(f"#{pane}-line")
    for title, following, press in (("Choice", "Form", "Espresso"), ("Approval", "Choice", "Deny")):
        await take_step(page, title, pane, "How do they grind it?" if title == "Choice" else "Approve refund_order?")
        await expect(messages.get_by_role("button", name=press, exact=True)).to_be_visible()
        for other in (following, title, "Report"):
            await page.locator("#setup li button", has_text=other).click()
            await page.press(f"#{pane}-line", "Enter")
            await expect(hint).to_contain_text(f"First press a button of “{title}”.")
            await expect(find_current_step(page)).to_contain_text(title)
        await messages.get_by_role("button", name=press, exact=True).click()
        await expect(messages).to_contain_text("ground as: Espresso." if title == "Choice" else "nothing was refunded")
        await expect(find_current_step(page)).to_contain_text(following)
    await expect(messages).not_to_contain_text("Open tasks")


async def test_the_page_takes_the_tour_and_returns(page: Page) -> None:
    await expect(page.locator("#model")).to_have_count(0)
    slack = page.locator("#slack .messages")
    await take_step(page, "Approval", "slack", "Approve refund_order?")
    await slack.get_by_role("button", name="Approve", exact=True).click()
    await expect(slack).to_contain_text("$42.00 goes back to Mina Park.")
    await expect(slack).to_contain_text("write “Send a replacement.”")
    await take_step(page, "Choice", "slack", "How do they grind it?")
    await slack.get_by_role("button", name="Espresso").click()
    await expect(slack).to_contain_text("ground as: Espresso.")

    discord = page.locator("#discord .messages")
    await page.locator("#discord .place", has_text="general").click()
    await page.focus("#discord-line")
    await take_step(page, "Report", "discord", "@parley How was this week?")
    await expect(discord).to_contain_text("Plan the tasting on the 12th")
    await expect(discord).to_contain_text("write “Make a CSV file of it.”")
    await expect(find_current_step(page)).to_contain_text("File")
    await take_step(page, "File", "discord", "week.csv")
    await expect(find_current_step(page)).to_contain_text("Image")
    await take_step(page, "Image", "discord", "Friday was the best one.")
    chart = page.get_by_role("img", name="Bar chart: Mon 612, Tue 540, Wed 904, Thu 811, Fri 1121")
    await expect(chart).to_be_visible()
    await expect(find_current_step(page)).to_contain_text("Reminder")
    await take_step(page, "Reminder", "discord", "⏰ Taste the new espresso")
    await expect(find_current_step(page)).to_contain_text("Background job")
    await take_step(page, "Background job", "discord", "✅ roast_coffee is done")
    await expect(discord).to_contain_text("The Harbour Blend is roasted: 20 kg.")
    await expect(find_current_step(page)).to_contain_text("Sign-in")
    await page.focus("#slack-line")
    await take_step(page, "Sign-in", "slack", "connect Harbour Calendar at 127.0.0.1 so that I can go on")
    await slack.get_by_role("button", name="Connect", exact=True).click()
    async with page.context.expect_page() as opened:
        await slack.get_by_role("link", name="Open the sign-in page").click()
    tab = await opened.value
    await tab.get_by_role("button", name="Continue").click()
    for service in ("Slack", "the local provider"):
        await expect(tab.get_by_role("heading", name=f"Sign in with {service}")).to_be_visible()
        await tab.get_by_role("link", name="ada", exact=True).click()
    await expect(tab.get_by_role("heading", name="Harbour Calendar at 127.0.0.1 is connected")).to_be_visible()
    await tab.close()
    await expect(slack).to_contain_text("Cupping with Mina Park")
    await page.focus("#discord-line")
    await expect(find_current_step(page)).to_contain_text("Sub-agent")
    await take_step(page, "Form", "discord", "What shall the tasting be like?")
    await discord.get_by_role("button", name="Answer").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("Your name").fill("Ada")
    await form.get_by_label("Day").select_option(label="Saturday")
    await form.get_by_role("button", name="Submit").click()
    await expect(discord).to_contain_text("Booked: Saturday, 8 guests of Ada, with Harbour Blend.")
    await expect(find_current_step(page)).to_contain_text("Report")
    await take_step(page, "Sub-agent", "discord", "I am writer, the second agent")
    await expect(discord.locator(".message").last).to_contain_text("That was the tour.")
    await expect(find_current_step(page)).to_have_count(0)
    await expect(page.locator("#setup li .primary")).to_have_count(0)

    await page.get_by_role("button", name="End the tour").click()
    await expect(page.locator("#setup")).to_contain_text(f"{TINY} is a tiny local model, often wrong: paste a key.")
    await expect(page.locator("#model")).to_have_value(TINY)
    await page.get_by_role("button", name="Take the tour").click()
    await expect(page.locator("#setup li")).to_have_count(len(STEPS))


@pytest.mark.parametrize("width", [1440, 390])
async def test_nothing_moves_while_the_page_loads(
    browser: Browser, fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "agent.py").write_text(AGENT.format(model="gemini-2.0-flash"))
    for agent in ("", "mine"):
        async with open_page(browser, fork_server, tmp_path, monkeypatch, agent, width) as (page, _):
            await expect(page.locator("#setup")).to_contain_text("has no API key" if agent else "scripted")
            assert await page.evaluate("window.shift") < 0.01


@pytest.mark.parametrize("model", ["openai/own", "gemini-2.0-flash"])
async def test_the_page_and_the_terminal_name_the_model_that_answers(
    browser: Browser, fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "agent.py").write_text(AGENT.format(model=model))
    async with open_page(browser, fork_server, tmp_path, monkeypatch, "mine") as (page, lines):
        bar = page.locator("#setup")
        if model == "openai/own":  # the server needs no key
            await expect(page.locator("#fixed-models")).to_have_text("openai/own")
            await expect(page.locator("#model")).to_have_count(0)
            await expect(bar).not_to_contain_text("tiny")
            await expect(bar.get_by_role("button")).to_have_text(["Take the tour"])
            notice = "Model: openai/own"
        else:
            notice = f"{model} has no API key: {TINY} (tiny, often wrong) answers instead."
            await expect(page.locator("#model")).to_have_value(TINY)
            await expect(page.get_by_text(re.compile("has no API key|often wrong"))).to_contain_text([notice])
        assert [line for line in lines if "odel" in line or "key" in line] == [notice]


async def test_a_pasted_key_is_tried_stored_and_used(page: Page, tmp_path: Path) -> None:
    await page.get_by_role("button", name="Paste a key").click()
    form = page.locator(".dialog")
    await expect(page.locator("#key")).to_be_focused()
    await page.fill("#key", "nothing-known")
    await page.get_by_role("button", name="Try and save").click()
    await expect(form.locator(".error")).to_have_text("The key's provider is not recognized: choose it in the list")
    await page.fill("#key", "sk-bad-0123456789")
    await page.press("#key", "Enter")
    await expect(form.locator(".error")).to_contain_text("OPENAI_API_KEY: openai refused the key")
    await expect(page.locator("#key")).to_have_value("")
    assert not (tmp_path / ".env").exists()

    await page.fill("#key", KEY)
    await page.press("#key", "Enter")
    await expect(form).to_have_count(0)
    await expect(page.locator("#model")).to_have_value("openai/gpt-5-mini")
    await expect(page.locator("#setup")).not_to_contain_text("tiny local model")
    await expect(page.locator("#top .state")).to_have_text("running")
    await page.fill("#slack-line", "which model?")
    await page.press("#slack-line", "Enter")
    await expect(page.locator("#slack .messages")).to_contain_text("You said: which model?")

    written = (tmp_path / ".env").read_text()
    assert f"OPENAI_API_KEY={KEY}\n" in written
    assert "MODEL=openai/gpt-5-mini\n" in written
    assert KEY not in await page.content()
    assert list_files_with(KEY, tmp_path) == [".env"]
