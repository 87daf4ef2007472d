"""Fixtures of the page: Chromium, and checks of the visible page."""

import os
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Browser, Page, async_playwright, expect

#: Limit of each wait for a visible change, long enough for an overloaded machine.
TIMEOUT_MILLISECONDS = 30_000

#: Options that prevent requests of the browser to any other server.
CHROMIUM_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


async def open_place(page: Page, on: str, place: str) -> None:
    await page.locator(f"#{on} .place", has_text=place).first.click()
    await expect(page.locator(f"#{on} .place.current")).to_contain_text(place)


async def check_accessibility(page: Page) -> None:
    """Run axe's rules on the visible page, and check that there is no violation."""
    results = await Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
