"""Questions, pictures and sound of an ADK agent on the simulator page."""

import os
import re
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.page.conftest import ROOT, TIMEOUT_MILLISECONDS, find_chromium, run_simulator
from tests.acceptance.page.test_accessibility import check
from tests.acceptance.page.test_page import post_message
from tests.processes.fork_server import ForkServer
from tests.processes.procfile import create_clean_environment

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=TIMEOUT_MILLISECONDS)

AGENT = """
import io
import wave
from base64 import b64decode
from typing import Literal

from google.adk.events.request_input import RequestInput
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import BaseModel, Field

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Order(BaseModel):
    name: str = Field(title="Your name", max_length=80)
    count: int = Field(default=1, ge=1, le=9, title="How many", description="At most 9")
    size: Literal["S", "M"] = Field(title="Size")
    extras: list[Literal["Milk", "Ice"]] = Field(default=["Ice"], title="Extras")
    note: str = Field(default="", title="Note")


def make_sound():
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(8000)
        writer.writeframes(bytes(16000))
    return sound.getvalue()


async def ask_milk(node_input):
    yield RequestInput(message="Milk?", response_schema=bool)


async def choose(node_input):
    yield RequestInput(message="Which coffee?", response_schema={"enum": [f"Coffee {n}" for n in range(1, 8)]})


async def order(node_input):
    yield RequestInput(message="Your order?", response_schema=Order)


async def answer(node_input):
    return types.Content(
        role="model",
        parts=[
            types.Part(text=f"Ordered: {node_input['count']} {node_input['size']} {node_input['extras']}."),
            types.Part.from_bytes(data=PNG, mime_type="image/png"),
            types.Part.from_bytes(data=make_sound(), mime_type="audio/wav"),
        ],
    )


root_agent = Workflow(name="shop", edges=[("START", ask_milk, choose, order, answer)])
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> AsyncIterator[str]:
    find_chromium()
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop").mkdir()
    (folder / "shop" / "agent.py").write_text(AGENT)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - create_clean_environment().keys():
            patch.delenv(name)
        patch.setattr(sys, "executable", str(fork_server.python))
        agent = str(folder / "shop")
        for name, value in {"PYTHONPATH": str(ROOT), "DATA_DIR": str(folder), "AGENT": agent}.items():
            patch.setenv(name, value)
        async with run_simulator(agent) as (address, _):
            yield address


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, address: str) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(address)
    for pane in ("slack", "discord"):
        await page.wait_for_selector(f".{pane} .state.on", timeout=3 * TIMEOUT_MILLISECONDS)
    yield page
    await context.close()
    assert complaints == []


async def open_form(page: Page, on: str) -> Locator:
    """Talk to the agent until it shows its form, open the form, and return the form."""
    messages = page.locator(f"#{on} .messages")
    await post_message(page, on, "coffee, please")
    await messages.get_by_role("button", name="Yes", exact=True).click()
    await messages.get_by_label("Choose").select_option(label="Coffee 7")
    await messages.get_by_role("button", name="Answer").click()
    form = page.locator(f"#{on}").get_by_role("dialog")
    await expect(form.get_by_label("Your name")).to_be_focused()
    return form


@pytest.mark.parametrize("on", ["slack", "discord"])
async def test_questions_are_answered_and_files_are_shown(page: Page, address: str, on: str) -> None:
    form = await open_form(page, on)
    submit = form.get_by_role("button", name=re.compile("Send|Submit"))
    await form.get_by_label("Your name").fill("Ada")
    await submit.click()
    assert await form.get_by_label("Size").evaluate("one => one.validity.valueMissing")  # no option is preselected
    await expect(form.get_by_label("Ice")).to_be_checked()
    await form.get_by_label("Milk").check()
    await form.get_by_label("Size").select_option(label="M")
    await form.get_by_label("How many").fill("12")
    await submit.click()
    if on == "discord":
        await (
            page.locator("#discord .ephemeral", has_text="Enter at most 9.")
            .get_by_role("button", name="Correct")
            .click()
        )
    else:
        await expect(form.get_by_label("How many")).to_have_accessible_description("At most 9 Enter at most 9.")
        await expect(form.get_by_label("How many")).to_be_focused()
    await expect(form.get_by_label("Your name")).to_have_value("Ada")
    await expect(form.get_by_label("Milk")).to_be_checked()
    await form.get_by_label("How many").fill("2")
    await submit.click()
    await expect(form).to_have_count(0)

    if on == "discord":
        await expect(page.locator("#discord .ephemeral")).to_have_count(0)
    titles = page.locator(".inspector .turn", has_text=on).locator(".turn-title")
    await expect(titles).to_have_text(
        ["Answered: Your order?", "Answered: Which coffee?", "Answered: Milk?", "coffee, please"]
    )
    messages = page.locator(f"#{on} .messages")
    await expect(messages).to_contain_text("Ordered: 2 M ['Milk', 'Ice'].")
    picture = messages.get_by_role("img", name="image-1.png")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("one => one.decode().then(() => one.naturalWidth)") == 1
    sound = messages.locator("audio")
    assert await sound.evaluate(
        """async sound => {
            sound.muted = true;
            sound.currentTime = 0.5; // a part of the file
            await sound.play();
            return [sound.duration, sound.currentTime >= 0.5];
        }"""
    ) == [1, True]
    async with (
        aiohttp.ClientSession() as session,
        session.get(address + str(await sound.get_attribute("src"))[1:], headers={"Range": "bytes=0-3"}) as part,
    ):
        assert (part.status, part.content_type, await part.read()) == (206, "audio/wav", b"RIFF")


@pytest.mark.parametrize("on", ["slack", "discord"])
async def test_axe_finds_no_violation_in_an_open_form(page: Page, on: str) -> None:
    form = await open_form(page, on)
    schemes = ("light", "dark")
    for scheme in schemes:
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await check(page)
    await form.get_by_label("Your name").press("Escape")
    await expect(form).to_have_count(0)
    await expect(page.locator(f"#{on}-line")).to_be_focused()
