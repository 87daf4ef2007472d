"""The page against axe's rules for accessibility."""

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, expect

from tests.sandbox.page.conftest import Stage
from tests.sandbox.page.test_page import post_message

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation(page: Page, stage: Stage, scheme: str) -> None:
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await post_message(page, "slack", "hello")
    await expect(page.locator("#slack .messages .message").first).to_be_visible()
    for width in (1280, 390):
        await page.set_viewport_size({"width": width, "height": 844})
        results = await Axe().run(page)
        assert results.violations_count == 0, results.generate_report()
