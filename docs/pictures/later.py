"""Pictures of turns that begin by themselves or are steered, in Slack beside Discord."""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

import aiohttp
from playwright.async_api import Page

from bot.routes.hooks import HOOKS_PATH
from bot.simulator.command import BOT_NAME
from chatrig.discord import DiscordSimulator
from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from chatrig.page import PageServer
from chatrig.slack import SlackSimulator
from docs.pictures.browser import SETTLE_MILLISECONDS, open_page, run_scripted_simulator, send_message
from docs.pictures.chats import STYLE, WINDOW_HEIGHT, WINDOW_WIDTH, take_picture, wait_for_text
from docs.pictures.stage import run_bot, write_files

#: Agent with a tool that takes long enough for a second message.
AGENT = """
import asyncio

from google.adk.agents import LlmAgent

from core.tools import background, idempotent, schedule


@idempotent
async def check_stock(blend: str) -> dict[str, int]:
    \"\"\"Count the bags of a blend in stock.\"\"\"
    await asyncio.sleep(5)
    return {"bags": 14}


@background
async def roast(blend: str) -> dict[str, str]:
    \"\"\"Roast a batch of a blend.\"\"\"
    await asyncio.sleep(4)
    return {"blend": blend, "roasted": "20 kg"}


root_agent = LlmAgent(name="stock", tools=[check_stock, roast, schedule])
"""

#: Seconds until the reminder of the picture.
REMINDER_SECONDS = 6

#: Hook of the page, for a channel of one platform.
HOOK = """
[deploys-{platform}]
place = "{platform}:{channel}"
signature = "bearer"
secret = "DEPLOYS_TOKEN"
prompt = "Version {{{{ payload.version }}}} is live. Write what changed, in three lines."
fields = ["version"]
"""

#: Answers by the tool whose result the model gets.
ANSWERS = {
    "check_stock": "Of the decaf, 14 bags are in stock.",
    "roast": "The roaster runs. I'll tell you when it is done.",
    "schedule": "I'll remind you.",
}

#: Answer to the request of the hook.
CHANGES = """Version **2.4.0** is live:

1. The shop shows the date of roasting.
2. Orders above $50 ship free.
3. The mobile menu closes again."""


def respond(request: ReceivedRequest) -> ScriptedResponse:
    """Return the model's response to a prompt or to the result of a tool."""
    if request.tool_results:
        return ANSWERS[request.tool_results[-1].name or ""]
    if "2.4.0" in request.text:
        return CHANGES
    if "20 kg" in request.text:
        return "The Harbour Blend is ready: **20 kg**."
    if "Roast" in request.text:
        return CallTool("roast", {"blend": "Harbour Blend"}, id="c3")
    if "stock" in request.text:
        return [Say("Let me count."), CallTool("check_stock", {"blend": "all"}, id="c1")]
    at = (datetime.now(UTC) + timedelta(seconds=REMINDER_SECONDS)).isoformat(timespec="seconds")
    return CallTool("schedule", {"text": "Ring Mina about order 1042.", "at": at, "is_task": False}, id="c2")


async def main() -> None:
    """Write `chat-steering.png`, `chat-schedule.png`, `chat-job.png` and `chat-hook.png`."""
    settings = {"AGENT": "stock_agent"}
    async with (
        run_scripted_simulator(respond, settings, {"stock_agent.py": AGENT}) as address,
        open_page(address, WINDOW_WIDTH, WINDOW_HEIGHT, scale=1.5, style=STYLE) as page,
    ):
        await _open_places(page)
        await _say(page, "How many bags are in stock?")
        await wait_for_text(page, "Let me count.", is_growing=True)
        await _say(page, "Of the decaf, please.")
        await wait_for_text(page, "Of the decaf, 14 bags")
        await take_picture(page, "chat-steering")
        await _hide_messages(page)
        await _open_places(page)
        await _say(page, "Remind me to ring Mina.")
        await wait_for_text(page, "Undo")
        await wait_for_text(page, "@ada ⏰ Ring Mina")
        await take_picture(page, "chat-schedule")
        await _hide_messages(page)
        await _open_places(page)
        await _say(page, "Roast a batch of the Harbour Blend.")
        await wait_for_text(page, "is ready")
        await take_picture(page, "chat-job")
    await _take_picture_of_hook()


async def _take_picture_of_hook() -> None:
    async with (
        SlackSimulator(bot_name=BOT_NAME) as slack,
        DiscordSimulator(bot_name=BOT_NAME) as discord,
        ScriptedOpenAI(respond) as model,
    ):
        channels = {"slack": slack.channels["general"].id, "discord": discord.channels["general"].id}
        hooks = "".join(HOOK.format(platform=name, channel=channel) for name, channel in channels.items())
        server = PageServer(slack, discord)
        token = token_hex()
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder), {"hooks.toml": hooks})
            async with (
                run_bot(slack, discord, model, HOOKS_FILE=f"{folder}/hooks.toml", DEPLOYS_TOKEN=token) as bot,
                server.serve(0),
                open_page(server.address, WINDOW_WIDTH, WINDOW_HEIGHT, scale=1.5, style=STYLE) as page,
                aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
            ):
                for pane in channels:
                    await page.locator(f"#{pane} .place", has_text="general").first.evaluate("place => place.click()")
                    url = f"{bot.address}{HOOKS_PATH}deploys-{pane}"
                    (await session.post(url, json={"version": "2.4.0"})).raise_for_status()
                await wait_for_text(page, "closes again")
                await page.locator("#slack .message .open").click()
                await wait_for_text(page, "closes again")
                await take_picture(page, "chat-hook")


async def _open_places(page: Page) -> None:
    await page.locator("#slack .place", has_text="parley").first.evaluate("place => place.click()")
    await page.locator("#discord .place", has_text="general").first.evaluate("place => place.click()")
    await page.wait_for_timeout(SETTLE_MILLISECONDS)


async def _hide_messages(page: Page) -> None:
    """Hide the messages of the Discord channel so far; Slack shows a new thread."""
    count = await page.locator("#discord .messages > *").count()
    await page.add_style_tag(content=f"#discord .messages > :nth-child(-n + {count}) {{ display: none; }}")


async def _say(page: Page, text: str) -> None:
    await send_message(page, "slack", text)
    await send_message(page, "discord", f"@parley {text}")


if __name__ == "__main__":
    asyncio.run(main())
