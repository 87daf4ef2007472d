"""Pictures of Slack beside Discord: answers, questions, an approval, a reset."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playwright.async_api import FloatRect, Page, expect

from bot.simulator.tour import GRINDS, TASTING_QUESTION, TASTING_SCHEMA
from chatrig.models import CallTool, Cite, Finish, ReceivedRequest, Say, ScriptedResponse
from docs.pictures.browser import SETTLE_MILLISECONDS, open_page, run_scripted_simulator, send_message
from docs.pictures.stage import write_files

HERE = Path(__file__).parent

PANES = ("slack", "discord")

#: Sizes in pixels; the margin is below the last message.
PANE_WIDTH, WINDOW_WIDTH, WINDOW_HEIGHT, MARGIN = 470, 1200, 1000, 16

#: Style of a page with only the two panes.
STYLE = f"""
#inspector, #top, #tabs, #toasts, .typing, .state {{ display: none !important; }}
.sidebar {{ display: none !important; }}
main {{ grid-template-columns: {PANE_WIDTH}px {PANE_WIDTH}px !important; }}
"""


#: Prices of the scripted model, so that the report has a cost.
PRICES = '"openai/scripted" = { input = 0.3, output = 2.5 }'

#: Model's responses by a word of the question.
_RESPONSES: dict[str, ScriptedResponse] = {
    "commit": Say(
        "Move the branch back by one commit and leave the files as they are:\n\n"
        "```sh\ngit reset --soft HEAD~1\n```\n\n"
        "- The changes stay **staged**, ready for the next commit.\n"
        "- If the commit is pushed already, use `git revert HEAD`."
    ),
    "replacement": [Say("How do they grind it?"), CallTool("get_user_choice", {"options": list(GRINDS)}, id="c1")],
    "tasting": [
        Say("Some details, please."),
        CallTool("adk_request_input", {"message": TASTING_QUESTION, "response_schema": TASTING_SCHEMA}, id="c2"),
    ],
    "chart": CallTool("draw_chart", {"name": "revenue.png"}, id="c3"),
    "refund": [
        Say("A refund needs an approval."),
        CallTool("refund_order", {"order": "1042", "amount": "$42.00"}, id="c5"),
    ],
    "order": [CallTool("find_order", {"order": "1042"}, id="c4"), Finish(input=812, output=18)],
    "espresso": [
        Say("About 18 g of coffee for 36 g of espresso in 25 to 30 seconds."),
        Cite("https://en.wikipedia.org/wiki/Espresso", "Espresso"),
        Cite("https://sca.coffee/research/coffee-standards", "Coffee standards"),
    ],
}


#: The shop of the tour, with the model of the settings.
SHOP = """
from bot.simulator.tour_agent import shop

root_agent = shop.clone({"model": ""})
"""


def respond(request: ReceivedRequest) -> ScriptedResponse:
    """Return the model's response to a prompt or to the result of a tool."""
    match {result.name: result.content for result in request.tool_results}:
        case {"get_user_choice": {"result": grind}}:
            return f"Two bags of Harbour Blend leave today, ground as: **{grind}**."
        case {"adk_request_input": {"result": {"host": host, "guests": guests, "day": day}}}:
            return f"Booked: **{day}**, {guests} guests of {host}."
        case {"draw_chart": _}:
            return "The revenue of each day in dollars. Friday was the best one."
        case {"refund_order": _}:
            return "Denied: nothing was refunded."
        case {"find_order": _}:
            text = "Order 1042 of **Mina Park**: 2 bags of Harbour Blend for $42.00, *delivered damaged*."
            return [Say(text), Finish(input=874, output=31)]
    return next(response for word, response in _RESPONSES.items() if word in request.text)


async def main() -> None:
    """Write `chat-*.png`."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), {"prices.toml": PRICES})
        settings = {"AGENT": "shop_of_tour", "PRICES_FILE": f"{folder}/prices.toml"}
        await _take_pictures(settings)


async def _take_pictures(settings: Mapping[str, str]) -> None:
    async with (
        run_scripted_simulator(respond, settings, {"shop_of_tour.py": SHOP}) as address,
        open_page(address, WINDOW_WIDTH, WINDOW_HEIGHT, scale=1.5, style=STYLE) as page,
    ):
        await _ask(page, "How do I undo my last commit, but keep the changes?", "Regenerate")
        await take_picture(page, "chat-answer")
        await _edit_question(page, "How do I undo my last two commits, but keep the changes?")
        await wait_for_text(page, "Answer the edited message")
        await take_picture(page, "chat-edited")
        await _take_choice(page)
        await _take_form(page)
        await _ask(page, "Draw a chart of the revenue.", "Friday was")
        for pane in PANES:
            await expect(page.locator(f"#{pane} .image img")).to_be_visible()
        await take_picture(page, "chat-image")
        await _ask(page, "How much coffee does an espresso take?", "sca.coffee")
        await take_picture(page, "chat-sources")
        await _ask(page, "Please refund order 1042.", "Deny")
        await take_picture(page, "chat-approval")
        for pane in PANES:
            await page.locator(f"#{pane} .button", has_text="Deny").click()
        await wait_for_text(page, "nothing was refunded")
        await _ask(page, "Where is order 1042?", "damaged")
        for pane in PANES:
            await _use_menu(page, pane, "Why this answer?")
        await wait_for_text(page, "How this answer was made")
        await take_picture(page, "chat-why")
        await _ask(page, "How much coffee does an espresso take?", "sca.coffee")
        await _use_menu(page, "slack", "Reset this conversation")
        await send_message(page, "discord", "/reset")
        await wait_for_text(page, "conversation was reset")
        await take_picture(page, "chat-reset")


async def _use_menu(page: Page, pane: str, entry: str) -> None:
    """Choose an entry in the menu of the last message."""
    message = page.locator(f"#{pane} .message").last
    await message.hover()
    await message.get_by_label("More actions").click()
    await message.get_by_role("button", name=entry).click()


async def _edit_question(page: Page, text: str) -> None:
    """Edit Ada's newest question on both platforms."""
    for pane, mention in (("slack", ""), ("discord", "@parley ")):
        question = page.locator(f"#{pane} .messages > .message[aria-label^='ada']").last
        await question.hover()
        await question.get_by_label("Edit", exact=True).click()
        await send_message(page, pane, f"{mention}{text}")


async def _take_choice(page: Page) -> None:
    """Take the pictures of an open choice and of its answer."""
    await _ask(page, "Send Mina a replacement.", "Espresso")
    await take_picture(page, "chat-choice")
    for pane in PANES:
        await page.locator(f"#{pane} .button", has_text="Filter").click()
    await wait_for_text(page, "Harbour Blend leave")
    await take_picture(page, "chat-answered")


async def _take_form(page: Page) -> None:
    """Take the picture of an open form."""
    await _ask(page, "Plan a tasting.", "Answer")
    for pane in PANES:
        await page.locator(f"#{pane} .button", has_text="Answer").last.click()
        form = page.locator(f"#{pane}").get_by_role("dialog")
        await form.get_by_label("Your name").fill("Ada")
        await form.get_by_label("Day").select_option(label="Friday")
    heights = [await page.locator(f"#{pane} .modal").evaluate("it => it.scrollHeight") for pane in PANES]
    height = max(heights) + 4 * MARGIN
    await page.set_viewport_size({"width": WINDOW_WIDTH, "height": height})
    await take_picture(page, "chat-form", height)
    await page.set_viewport_size({"width": WINDOW_WIDTH, "height": WINDOW_HEIGHT})
    for pane in PANES:
        form = page.locator(f"#{pane}").get_by_role("dialog")
        await form.get_by_role("button", name="Submit").or_(form.get_by_role("button", name="Send")).click()
    await wait_for_text(page, "Booked")


async def _ask(page: Page, text: str, answer: str) -> None:
    """Ask in a new Slack thread and in a Discord channel; wait for the answer.

    Earlier messages of the Discord channel are hidden.

    Args:
        answer: a text that the answer contains.
    """
    await page.locator("#slack .place", has_text="parley").first.evaluate("place => place.click()")
    await page.locator("#discord .place", has_text="general").first.evaluate("place => place.click()")
    await expect(page.locator("#slack .title h2")).to_have_text("@parley ")
    await page.wait_for_timeout(SETTLE_MILLISECONDS)
    message_count = await page.locator("#discord .message").count()
    await page.add_style_tag(content=f"#discord .messages > :nth-child(-n + {message_count}) {{ display: none; }}")
    await send_message(page, "slack", text)
    await send_message(page, "discord", f"@parley {text}")
    await wait_for_text(page, answer)


async def wait_for_text(page: Page, text: str, *, is_growing: bool = False) -> None:
    """Wait until both platforms show this text, and no reply grows, unless it may."""
    for pane in PANES:
        await expect(page.locator(f"#{pane} .messages")).to_contain_text(text)
        if is_growing:
            continue
        await expect(page.locator(f"#{pane} .button", has_text="Stop")).to_have_count(0)
        await expect(page.locator(f"#{pane} .typing .dots")).to_have_count(0)


async def take_picture(page: Page, name: str, height: float = 0) -> None:
    """Take a picture of both panes.

    Args:
        name: the file name without its extension.
        height: the height in pixels; 0 ends the picture below the last message.
    """
    await page.mouse.move(WINDOW_WIDTH - 1, 1)
    await page.evaluate("document.activeElement.blur()")
    await page.wait_for_timeout(SETTLE_MILLISECONDS)
    if not height:
        boxes = [await page.locator(f"#{pane} .message").last.bounding_box() for pane in PANES]
        height = max(box["y"] + box["height"] for box in boxes if box) + MARGIN
    clip = FloatRect(x=0, y=0, width=2 * PANE_WIDTH, height=height)
    await page.screenshot(path=HERE / f"{name}.png", clip=clip, animations="disabled")


if __name__ == "__main__":
    asyncio.run(main())
