"""Fixtures of the simulator page: `parley simulator`, its bot, and Chromium."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from bot.settings import load_settings
from bot.simulator import command as simulator
from chatrig.models import ReceivedRequest, ScriptedOpenAI, ScriptedResponse
from tests.processes.fork_server import ForkServer
from tests.processes.procfile import create_clean_environment

ROOT = Path(__file__).parents[3]

#: Options that prevent requests of the browser to any other server.
CHROMIUM_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)

#: Limit of each wait for a visible change, long enough for an overloaded machine.
TIMEOUT_MILLISECONDS = 30_000

TOOLS = """
import asyncio

from core.tools import Tool

async def pay_back(arguments):
    await asyncio.sleep(0.5)  # so that the page shows the running tool
    return {"refunded": arguments["amount"]}

amount = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
refund = Tool(name="refund", description="Pay back.", handler=pay_back, parameters=amount, require_confirmation=True)
"""


#: JavaScript function whose promise resolves once a pane has shown the bot as disconnected and then as connected.
RECONNECT_WATCHER = """
pane => new Promise(resolve => {
  let wasDisconnected = false
  const observer = new MutationObserver(() => {
    wasDisconnected ||= document.querySelector(`#${pane} .state.off`) !== null
    if (wasDisconnected && document.querySelector(`#${pane} .state.on`) !== null) { observer.disconnect(); resolve() }
  })
  observer.observe(document.querySelector(`#${pane}`), { subtree: true, childList: true, attributes: true })
})
"""


@asynccontextmanager
async def wait_for_reconnect(page: Page, pane: str) -> AsyncIterator[None]:
    """Wait until a pane has shown the bot as disconnected, and then as connected.

    The body of the context makes the bot disconnect.

    Args:
        pane: "slack" or "discord".
    """
    watching = asyncio.create_task(page.evaluate(RECONNECT_WATCHER, pane))
    await page.evaluate("null")  # returns once the watcher has started
    yield
    await asyncio.wait_for(watching, 2 * TIMEOUT_MILLISECONDS / 1000)


@dataclass
class SimulatorPage:
    """Running simulator page, and the scripted model of its bot.

    Attributes:
        address: the page's URL.
        folder: the working folder of the bot.
        answer: the function that returns the model's answer; a test may replace it.
    """

    address: str
    folder: Path
    model: ScriptedOpenAI
    answer: Callable[[ReceivedRequest], ScriptedResponse]


def find_chromium() -> str:
    """Return the path of Chromium.

    Without Chromium, the test is skipped; in CI it fails.
    """
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    reason = "Chromium is not installed: apt-get install -y chromium"
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


@asynccontextmanager
async def run_simulator(agent: str = "") -> AsyncIterator[tuple[str, list[str]]]:
    """Run `parley simulator`, and yield the page's URL and the list of printed lines.

    Args:
        agent: the setting `AGENT`.
    """
    stop, lines, has_output = asyncio.Event(), list[str](), asyncio.Event()

    def echo(line: str) -> None:
        lines.append(line)
        has_output.set()

    running = asyncio.create_task(
        simulator.run_local_platforms(load_settings(), stop, terminal=False, agent=agent, port=0, echo=echo)
    )
    try:
        async with asyncio.timeout(30):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+/", "".join(lines))):
                await has_output.wait()
        yield found[0], lines
    finally:
        stop.set()
        await running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulator_page(
    tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer
) -> AsyncIterator[SimulatorPage]:
    find_chromium()
    folder = tmp_path_factory.mktemp("simulator")
    (folder / "shop.py").write_text(TOOLS)
    (folder / "prices.toml").write_text('"openai/scripted" = { input = 1000, output = 1000 }')
    pages: list[SimulatorPage] = []

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return pages[0].answer(request)

    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - create_clean_environment().keys():
            patch.delenv(name)
        patch.setattr(sys, "executable", str(fork_server.python))
        patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{folder}")
        async with ScriptedOpenAI(answer) as model:
            settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "TOOLS": "shop:refund"}
            settings |= {"PRICES_FILE": str(folder / "prices.toml"), "DATA_DIR": str(folder), "LEASE_SECONDS": "3"}
            settings |= {"MODELS": "openai/scripted,openai/other", "GOOGLE_API_KEY": "AIza-none"}
            settings |= {"HISTORY_MAX_TOKENS": "300"}
            for name, value in settings.items():
                patch.setenv(name, value)
            async with run_simulator() as (address, _):
                pages.append(SimulatorPage(address, folder, model, lambda request: f"You said: {request.text}"))
                yield pages[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, simulator_page: SimulatorPage) -> AsyncIterator[Page]:
    """Yield a browser page that shows both bots as connected.

    At the end, the fixture fails on warnings and errors in the browser's console.
    """
    context = await browser.new_context(viewport={"width": 1440, "height": 860}, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = await context.new_page()
    console_errors: list[str] = []
    page.on("console", lambda line: console_errors.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: console_errors.append(str(error)))
    await page.goto(simulator_page.address)
    for pane in ("slack", "discord"):
        await page.wait_for_selector(
            f".{pane} .state.on", timeout=3 * TIMEOUT_MILLISECONDS
        )  # the bot has just been started
    yield page
    await context.close()
    assert console_errors == []
