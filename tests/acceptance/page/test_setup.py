"""Tour and model key on the simulator page, in a real browser."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from chatrig.models import ScriptedOpenAI
from tests.acceptance.page.conftest import ROOT, TIMEOUT_MILLISECONDS, find_chromium, run_simulator
from tests.processes.fork_server import ForkServer
from tests.processes.procfile import create_clean_environment

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=TIMEOUT_MILLISECONDS)

KEY = "sk-good-0123456789"


@pytest_asyncio.fixture(loop_scope="module")
async def page(
    browser: Browser, fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Page]:
    """Yield the page of a simulator without a model key.

    The bot's OpenAI server is a local one that accepts only the key `KEY`.
    """
    find_chromium()
    for name in os.environ.keys() - create_clean_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "executable", str(fork_server.python))
    monkeypatch.chdir(tmp_path)
    async with ScriptedOpenAI(lambda request: f"You said: {request.text}", api_key=KEY) as model:
        settings = {"PYTHONPATH": str(ROOT), "DATA_DIR": str(tmp_path), "OPENAI_BASE_URL": model.base_url}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        async with run_simulator() as (address, _):
            page = await browser.new_page(viewport={"width": 1440, "height": 860}, reduced_motion="reduce")
            page.set_default_timeout(TIMEOUT_MILLISECONDS)
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(address)
            await page.wait_for_selector(".slack .state.on", timeout=3 * TIMEOUT_MILLISECONDS)
            yield page
            await page.close()
            assert complaints == []


def list_files_with(text: str, folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def take_step(page: Page, title: str, pane: str, end: str) -> None:
    """Click a step of the tour, send its message, and wait for the text `end`."""
    await page.locator("#setup li button", has_text=title).click()
    await page.press(f"#{pane}-line", "Enter")
    await expect(page.locator(f"#{pane} .messages")).to_contain_text(end)


async def test_the_page_takes_the_tour_and_returns(page: Page) -> None:
    await expect(page.locator("#setup")).to_contain_text("Tiny local model, often wrong.")
    await page.get_by_role("button", name="Take the tour").click()
    await expect(page.locator("#setup")).to_contain_text("Scripted tour: no model is asked.")
    await expect(page.locator("#top .state")).to_have_text("running")
    await expect(page.locator("#model")).to_have_count(0)

    slack = page.locator("#slack .messages")
    await take_step(page, "Streaming", "slack", "Scripted tour: no model is asked.")
    await expect(slack).to_contain_text("write “Where is order 1042?”")
    await expect(page.locator("#setup li .primary")).to_have_text("2. Tool")
    await take_step(page, "Tool", "slack", "delivered damaged")
    await expect(slack).to_contain_text("write “Please refund it.”")
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
    await page.locator("#setup li button", has_text="Report").click()
    await expect(page.locator("#discord-line")).to_have_value("@parley How was this week?")
    await page.press("#discord-line", "Enter")
    await expect(discord).to_contain_text("Plan the tasting on the 12th")
    await expect(discord).to_contain_text("write “Make a CSV file of it.”")
    await take_step(page, "File", "discord", "week.csv")
    await take_step(page, "Image", "discord", "Friday was the best one.")
    chart = page.get_by_role("img", name="Bar chart: Mon 612, Tue 540, Wed 904, Thu 811, Fri 1121")
    await expect(chart).to_be_visible()
    await take_step(page, "Form", "discord", "What shall the tasting be like?")
    await discord.get_by_role("button", name="Answer").click()
    form = page.get_by_role("dialog")
    await form.get_by_label("Your name").fill("Ada")
    await form.get_by_label("Day").select_option(label="Saturday")
    await form.get_by_role("button", name="Submit").click()
    await expect(discord).to_contain_text("Booked: Saturday, 8 guests of Ada, with Harbour Blend.")
    await take_step(page, "Sub-agent", "discord", "I am writer, the second agent")

    await page.get_by_role("button", name="End the tour").click()
    await expect(page.locator("#setup")).to_contain_text("Tiny local model, often wrong.")
    await expect(page.locator("#model")).to_have_value("local/smollm2-135m")


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
    await expect(page.locator("#setup")).not_to_contain_text("Tiny local model")
    await expect(page.locator("#top .state")).to_have_text("running")
    await page.fill("#slack-line", "which model?")
    await page.press("#slack-line", "Enter")
    await expect(page.locator("#slack .messages")).to_contain_text("You said: which model?")

    written = (tmp_path / ".env").read_text()
    assert f"OPENAI_API_KEY={KEY}\n" in written
    assert "MODEL=openai/gpt-5-mini\n" in written
    assert KEY not in await page.content()
    assert list_files_with(KEY, tmp_path) == [".env"]
