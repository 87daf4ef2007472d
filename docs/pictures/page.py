"""Pictures of the simulator's page: a browser, the real bot, and a scripted model."""

import asyncio
from pathlib import Path

from playwright.async_api import Page, expect

from chatrig.models import CallTool, Pause, ReceivedRequest, Say, ScriptedResponse
from docs.pictures.browser import SETTLE_MILLISECONDS, open_page, run_scripted_simulator, send_message

HERE = Path(__file__).parent

TOOLS = """
from core.tools import Tool


async def _roll_back(arguments):
    return {"version": arguments["version"], "state": "live"}


parameters = {"type": "object", "properties": {"version": {"type": "string"}}, "required": ["version"]}
rollback = Tool(
    name="rollback",
    description="Go back to a version.",
    handler=_roll_back,
    parameters=parameters,
    require_confirmation=True,
)
"""

UNDO = """\
Move the branch back by one commit and leave the files as they are:

```sh
git reset --soft HEAD~1
```

- The changes stay **staged**, ready for the next commit.
- If the commit is pushed already, use `git revert HEAD`."""

COMPARE = """\
Three ways to store them:

| Way | Reads | Writes |
| --- | --- | --- |
| A list | slow | fast |
| A hash map | fast | fast |
| A tree | fast | sorted |

```python
seen = {word: len(word) for word in words}
```

Take the **hash map**, unless you need them in order."""


async def main() -> None:
    """Write `page*.png`."""
    may_begin, may_finish_undo, may_finish_comparison = asyncio.Event(), asyncio.Event(), asyncio.Event()
    cause_requests = list[str]()

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if "commit" in request.text:
            first, second = UNDO.split("- If the")
            return [Pause(may_begin), Say(first), Pause(may_finish_undo), Say(f"- If the{second}")]
        if "store" in request.text:
            return [Say(COMPARE[:120]), Pause(may_finish_comparison), Say(COMPARE[120:])]
        if request.tool_results:
            return "Done: version 41 is live again."
        if "broken" in request.text:
            rollback = CallTool("rollback", {"version": "41"}, id="c1")
            return [Say("The errors began with version 42. I can go back to 41."), rollback]
        cause_requests.append(request.text)
        ending = Say("did not know of the new column. It will happen never again.")
        # the first attempt pauses until the bot is killed
        pause = [Pause(3600)] if len(cause_requests) == 1 else []
        return [Say("It began with a migration: version 42 "), *pause, ending]

    async with (
        run_scripted_simulator(answer, {"TOOLS": "shop:rollback"}, {"shop.py": TOOLS}) as address,
        open_page(address, 1440, 820) as page,
    ):
        await send_message(page, "slack", "How do I undo my last commit, but keep the changes?")
        may_begin.set()
        await expect(page.locator("#slack .messages")).to_contain_text("staged")
        may_finish_undo.set()
        await expect(page.locator("#slack .messages")).to_contain_text("Regenerate")
        await page.locator("#discord .place", has_text="general").click()
        await send_message(page, "discord", "@parley how should I store a million words?")
        await expect(page.locator("#discord .messages")).to_contain_text("Three ways")
        await page.locator(".inspector .turn summary").first.click()
        await page.locator(".inspector .model-call summary").first.click()
        await expect(page.locator(".inspector .prompt-message").first).to_be_visible()
        await _take_picture(page, "page-growing")
        may_finish_comparison.set()
        await expect(page.locator("#discord .messages")).to_contain_text("hash map")
        await expect(page.locator(".inspector .turn.running")).to_have_count(0)
        await page.emulate_media(color_scheme="dark")
        await _take_picture(page, "page")
        await _take_reset(page)
        await _take_failures(page)


async def _take_reset(page: Page) -> None:
    """Take the picture of a reset conversation, with its old messages above."""
    await page.emulate_media(color_scheme="light")
    messages = page.locator("#discord .message")
    before = await messages.count()
    await send_message(page, "discord", "/reset")
    await expect(messages).to_have_count(before + 1)
    await _take_picture(page, "page-reset")


async def _take_failures(page: Page) -> None:
    """Take the pictures of a killed bot and of a phone."""
    await page.locator("#slack .place", has_text="general").click()
    await send_message(page, "slack", "@parley the shop is broken, what now?")
    await expect(page.locator("#slack .messages")).to_contain_text("rollback")
    await page.locator("#slack .replies .open").click()
    await page.locator("#slack .button", has_text="Approve").click()
    await expect(page.locator("#slack .messages")).to_contain_text("41 is live")

    await page.click("#tab-faults")
    await send_message(page, "slack", "Tell me how it came about.")
    await expect(page.locator("#slack .messages")).to_contain_text("It began")
    await page.get_by_role("button", name="Kill the bot").click()
    await page.wait_for_selector(".slack .state.off")
    await _take_picture(page, "page-fault")
    await expect(page.locator("#slack .messages")).to_contain_text("never again.")

    await page.set_viewport_size({"width": 390, "height": 780})
    await page.locator("#tabs .tab", has_text="Discord").click()
    await _take_picture(page, "page-phone")


async def _take_picture(page: Page, name: str) -> None:
    await page.mouse.move(0, 0)
    await page.wait_for_timeout(SETTLE_MILLISECONDS)
    await page.locator("body").screenshot(path=HERE / f"{name}.png", animations="disabled")
