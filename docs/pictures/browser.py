"""The simulator's page in a real browser, with the real bot."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from playwright.async_api import Page, async_playwright, expect

from bot.settings import load_settings
from bot.simulator import command
from chatrig.models import ReceivedRequest, ScriptedOpenAI, ScriptedResponse
from docs.pictures.stage import ROOT, write_files

#: Limit for each step of a browser.
TIMEOUT_MILLISECONDS = 60_000

#: Time after which animations and repaints have ended.
SETTLE_MILLISECONDS = 400


@asynccontextmanager
async def open_page(address: str, width: int, height: int, *, scale: float = 1, style: str = "") -> AsyncIterator[Page]:
    """Open the page in light colours, and yield it once both platforms are connected.

    Args:
        scale: device pixels of a CSS pixel.
        style: additional CSS.
    """
    path = shutil.which("chromium") or shutil.which("google-chrome")
    flags = ["--headless", "--no-sandbox", "--disable-gpu"]
    expect.set_options(timeout=TIMEOUT_MILLISECONDS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=flags)
        page = await browser.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=scale,
            color_scheme="light",
            bypass_csp=bool(style),
        )
        page.set_default_timeout(TIMEOUT_MILLISECONDS)
        await page.goto(address)
        for pane in ("slack", "discord"):
            await page.wait_for_selector(f".{pane} .state.on")
        if style:
            await page.add_style_tag(content=style)
        yield page
        await browser.close()


@asynccontextmanager
async def run_simulator(
    settings: Mapping[str, str], files: Mapping[str, str] | None = None, *, is_tour: bool = False
) -> AsyncIterator[str]:
    """Run the simulator in a temporary folder, and yield the URL of its page.

    Args:
        files: texts of files in the folder, by name.
        is_tour: whether the scripted tour answers.
    """
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()

    def echo(line: str) -> None:
        if (found := re.search(r"http://\S+", line)) and not address.done():
            address.set_result(found[0])

    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), files or {})
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "DATA_DIR": folder}
        with patch.dict(os.environ, {**paths, **settings}, clear=True):
            simulator_task = asyncio.create_task(
                command.run_local_platforms(load_settings(), stop, terminal=False, is_tour=is_tour, port=0, echo=echo)
            )
            try:
                yield await asyncio.wait_for(address, 60)
            finally:
                stop.set()
                await simulator_task


@asynccontextmanager
async def run_scripted_simulator(
    respond: Callable[[ReceivedRequest], ScriptedResponse],
    settings: Mapping[str, str],
    files: Mapping[str, str] | None = None,
) -> AsyncIterator[str]:
    """Run the simulator with a scripted model, and yield the URL of its page."""
    async with ScriptedOpenAI(respond) as model:
        scripted = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url}
        async with run_simulator({**scripted, **settings}, files) as address:
            yield address


async def send_message(page: Page, pane: str, text: str) -> None:
    await page.fill(f"#{pane}-line", text)
    await page.press(f"#{pane}-line", "Enter")
