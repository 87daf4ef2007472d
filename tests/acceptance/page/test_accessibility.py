"""Simulator page, checked by axe's rules for accessibility."""

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, expect

from tests.acceptance.page.conftest import SimulatorPage
from tests.acceptance.page.test_page import post_message

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def check(page: Page) -> None:
    """Run axe's rules on the visible page, and check that there is no violation."""
    results = await Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation(page: Page, simulator_page: SimulatorPage, scheme: str) -> None:
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await post_message(page, "slack", "hello")
    await expect(page.locator("#slack .messages .message").first).to_be_visible()
    for width in (1280, 390):
        await page.set_viewport_size({"width": width, "height": 844})
        await check(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_dialogs_and_the_inspector(
    page: Page, simulator_page: SimulatorPage, scheme: str
) -> None:
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    simulator_page.answer = lambda request: "There it is."
    question = f"show me the {scheme} inspector"  # unique text, so the order of the list does not matter
    await post_message(page, "discord", question)
    turn = page.locator(".inspector .turn", has_text=question).first
    await expect(turn.locator("summary").first).to_contain_text("$")  # the cost comes last
    await turn.locator("summary").first.click()
    await turn.locator(".model-call summary").first.click()
    await expect(turn.locator(".prompt-message pre").first).to_be_visible()
    for tab in ("turns", "calls", "faults"):
        await page.click(f"#tab-{tab}")
        await check(page)
    await page.click("#tab-calls")
    await page.locator(".inspector .call summary").first.click()
    await expect(page.locator(".inspector .call pre").first).to_be_visible()
    await check(page)
    await page.select_option("#model", label="another model…")
    await check(page)
    await page.get_by_role("button", name="Cancel").click()
    await page.evaluate("import('/extension/key.js').then(({ openKeyForm }) => openKeyForm())")
    await expect(page.locator("#key")).to_be_focused()
    await check(page)
