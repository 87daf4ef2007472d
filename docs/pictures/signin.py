"""Pictures of a tool that acts as the person who asks, in Slack beside Discord, and of the page that people confirm."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Page, expect

from bot.simulator.tour import EVENTS
from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedResponse
from chatrig.oauth import CalendarEvent, OAuthServer
from docs.pictures.browser import SETTLE_MILLISECONDS, open_page, run_scripted_simulator, send_message
from docs.pictures.chats import HERE, PANES, STYLE, WINDOW_HEIGHT, WINDOW_WIDTH, take_picture, wait_for_text

GUIDE = HERE.parent / "howto" / "act-as-the-person.md"

#: Id of the example's client at the local provider; its metadata are a document at this URL.
CLIENT_ID = "https://calendar.example.com/client"

#: Size of the picture of a page in pixels.
PAGE_WIDTH, PAGE_HEIGHT = 620, 330

QUESTION = "What is in my calendar?"


def read_examples(provider_url: str, client_id: str) -> list[str]:
    """Return the Python examples of the guide, with a local provider in place of Google."""
    local = {
        "https://accounts.google.com/o/oauth2/v2/auth": f"{provider_url}/authorize",
        "https://oauth2.googleapis.com/token": f"{provider_url}/token",
        "https://www.googleapis.com/calendar/v3/calendars/primary/events": f"{provider_url}/calendar",
        "https://www.googleapis.com/auth/calendar.events.readonly": "calendar",
        "1234-abcd.apps.googleusercontent.com": client_id,
    }
    text = GUIDE.read_text()
    for original, replacement in local.items():
        assert original in text, original
        text = text.replace(original, replacement)
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def respond(request: ReceivedRequest) -> ScriptedResponse:
    """Return the model's response to the question or to the tool's result."""
    if not request.tool_results:
        return [Say("Let me look."), CallTool("list_events", id="c1")]
    content = request.tool_results[-1].content
    titles = [event["title"] for event in content["events"]] if isinstance(content, dict) else []
    return "\n".join(["Your calendar has:", "", *(f"- **{title}**" for title in titles)])


async def main() -> None:
    """Write `chat-connect.png`, `page-connect.png`, `chat-connected.png` and `chat-connections.png`."""
    async with OAuthServer() as provider:
        provider.users["ada"].events[:] = [CalendarEvent(EVENTS["ada"], datetime.now(UTC))]
        example, *_ = read_examples(provider.url, CLIENT_ID)
        settings = {"TOOLS": "calendars:events"}
        async with (
            run_scripted_simulator(respond, settings, {"calendars.py": example}) as address,
            open_page(address, WINDOW_WIDTH, WINDOW_HEIGHT, scale=1.5, style=STYLE) as page,
        ):
            await _take_pictures(page, provider)


async def _take_pictures(page: Page, provider: OAuthServer) -> None:
    await _open_places(page)
    await send_message(page, "slack", QUESTION)
    await send_message(page, "discord", f"@parley {QUESTION}")
    await wait_for_text(page, "so that I can go on")
    for pane in PANES:
        await page.locator(f"#{pane}").get_by_role("button", name="Connect", exact=True).click()
    await wait_for_text(page, "Open the sign-in page")
    await take_picture(page, "chat-connect")
    for pane in PANES:
        await _sign_in(page, pane, provider)
    await wait_for_text(page, EVENTS["ada"])
    await take_picture(page, "chat-connected")
    await _open_places(page)
    count = await page.locator("#discord .messages > *").count()
    await page.add_style_tag(content=f"#discord .messages > :nth-child(-n + {count}) {{ display: none; }}")
    for pane in PANES:
        await send_message(page, pane, "/connections")
    await wait_for_text(page, "Disconnect")
    await take_picture(page, "chat-connections")


async def _open_places(page: Page) -> None:
    await page.locator("#slack .place", has_text="parley").first.evaluate("place => place.click()")
    await page.locator("#discord .place", has_text="general").first.evaluate("place => place.click()")
    await page.wait_for_timeout(SETTLE_MILLISECONDS)


async def _sign_in(page: Page, pane: str, provider: OAuthServer) -> None:
    """Open the private link of a pane, and sign in as Ada on the platform and at the provider."""
    async with page.context.expect_page() as opened:
        await page.locator(f"#{pane}").get_by_role("link", name="Open the sign-in page").click()
    tab = await opened.value
    origin = urlsplit(tab.url)._replace(path="/sign-in/callback").geturl()
    provider.client_documents[CLIENT_ID] = {"client_id": CLIENT_ID, "redirect_uris": [origin]}
    await tab.set_viewport_size({"width": PAGE_WIDTH, "height": PAGE_HEIGHT})
    await expect(tab.get_by_role("button", name="Continue")).to_be_visible()
    await tab.screenshot(path=Path(HERE / "page-connect.png"))
    await tab.get_by_role("button", name="Continue").click()
    for _ in range(2):
        await tab.get_by_role("link", name="ada", exact=True).click()
    await expect(tab.get_by_role("heading", name="is connected")).to_be_visible()
    await tab.close()


if __name__ == "__main__":
    asyncio.run(main())
