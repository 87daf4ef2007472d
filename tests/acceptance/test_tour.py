"""The scripted tour on both platforms."""

import re

import aiohttp

from bot.simulator import command
from bot.simulator.tour import (
    CALENDAR_VARIABLE,
    STEPS,
    TASKS,
    TOUR_MODEL,
    create_calendar_server,
    respond_to_tour,
)
from bot.simulator.tour_agent import LOOKUP_SECONDS
from chatrig.discord import DiscordSimulator
from chatrig.oauth.authorization import USER_PARAMETER
from chatrig.slack import SlackSimulator
from core.signin.browser import CALLBACK_PATH
from tests.acceptance.conftest import AcceptanceBot, StartBot
from tests.acceptance.platforms import BotConversation, Platform
from tests.processes.procfile import find_free_port


async def take_step(
    bot: AcceptanceBot, platform: Platform, conversation: BotConversation, prompt: str, end: str
) -> str:
    """Post `prompt`, and return the text of the replies once it contains `end`."""
    before = len(conversation.replies())
    await conversation.say(prompt)

    def reply() -> str:
        return "\n".join(message.text for message in conversation.replies()[before:])

    try:
        await platform.wait_for(lambda: end in reply())
    except TimeoutError:
        raise AssertionError(f"{prompt}: {reply()}\n{bot.program.log[-3000:]}") from None
    return reply()


async def wait_for_link(platform: Platform, conversation: BotConversation) -> str:
    """Return the private link below a request to sign in."""

    def find_link() -> str | None:
        messages = conversation.chat.list_bot_messages()
        parts = [
            getattr(message, "blocks", None) or getattr(message.content, "components", None) for message in messages
        ]
        found = re.search(r"http://127\.0\.0\.1:\d+/sign-in/[\w-]+", str(parts))
        return found and found[0]

    return str(await platform.wait_for(find_link))


async def sign_in(link: str, user: str, account: str) -> str:
    """Follow a private link through the pages of the platform and of the calendar; return the last page."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:  # of an IP address, too
        response = await browser.post(link)
        for name in (user, account):
            response = await browser.get(response.url.update_query({USER_PARAMETER: name}))
        return await response.text()


async def test_the_tour_shows_every_step_on_both_platforms(
    start: StartBot, slack: SlackSimulator, discord: DiscordSimulator
) -> None:
    url = f"http://127.0.0.1:{find_free_port()}"
    async with create_calendar_server(url + CALLBACK_PATH) as calendar:
        settings = {**command._set_up_sign_in(slack, discord, url), CALENDAR_VARIABLE: calendar.url}
        bot = await start(
            AGENT="bot.simulator.tour_agent", MODEL=TOUR_MODEL, SECRET_KEY="0123456789abcdef" * 4, **settings
        )
        await take_tour(bot)


async def take_tour(bot: AcceptanceBot) -> None:
    assert LOOKUP_SECONDS > 0  # the line of the tool can be seen
    bot.answer = respond_to_tour
    approval, choice, form, report, file, image, reminder, job, account, writer = (step.prompt for step in STEPS)

    async def scenario(platform: Platform) -> None:
        conversation = platform.start_dm("ada")
        introduction = await take_step(bot, platform, conversation, approval, "Approve")
        assert "Scripted tour: no model is asked" in introduction
        assert "Coffee, 2 bags" in introduction
        assert any("Looking up order 1042" in version for reply in conversation.replies() for version in reply.versions)
        assert await conversation.press("Deny")
        await platform.wait_for(lambda: "nothing was refunded" in conversation.replies()[-1].text)
        await take_step(bot, platform, conversation, approval, "Approve")
        assert await conversation.press("Approve")
        await platform.wait_for(lambda: "$42.00 goes back" in conversation.replies()[-1].text)

        await take_step(bot, platform, conversation, choice, "Which one do you choose?")
        assert await conversation.press("Filter")
        await platform.wait_for(lambda: "ground as: **Filter**" in conversation.replies()[-1].text)

        await take_step(bot, platform, conversation, form, "What shall the tasting be like?")
        assert await conversation.press("Answer")
        await conversation.wait_for_form()
        await conversation.chat.fill_form("Ada", "12", "option:1")
        await platform.wait_for(
            lambda: "**Friday**, 12 guests of Ada, with Harbour Blend." in conversation.replies()[-1].text
        )

        text = await take_step(bot, platform, conversation, report, file)
        assert "1,120.60" in text
        assert "GROUP BY day" in text
        assert all(task in text for task in TASKS)

        assert conversation.file_names() == []
        await take_step(bot, platform, conversation, file, image)
        await platform.wait_for(lambda: conversation.file_names() == ["week.csv"])
        await take_step(bot, platform, conversation, image, reminder)
        await platform.wait_for(lambda: conversation.file_names() == ["week.csv", "revenue.png"])
        assert "⏰ Taste the new espresso: " in await take_step(bot, platform, conversation, reminder, "⏰")

        await take_step(bot, platform, conversation, job, "The roaster runs")
        await platform.wait_for(lambda: any("roasted: **20 kg**" in reply.text for reply in conversation.replies()))
        headers = [reply.text for reply in conversation.replies() if reply.text.endswith(" ✅ `roast_coffee` is done")]
        assert headers in (["@ada ✅ `roast_coffee` is done"], ["@Ada Lovelace ✅ `roast_coffee` is done"])

        await take_step(bot, platform, conversation, account, "so that I can go on")
        assert await conversation.press("Connect")
        assert "is connected" in await sign_in(await wait_for_link(platform, conversation), "ada", "grace")
        await platform.wait_for(lambda: "**Call with the carrier**" in conversation.replies()[-1].text)

        letter = await take_step(bot, platform, conversation, writer, "That was the tour.")
        assert "I am *writer*" in letter or "I am _writer_" in letter
        await take_step(bot, platform, conversation, "And where is my parcel now?", "I only know its steps")

    await bot.run_on_all_platforms(scenario)
    assert await bot.program.stop() == 0
    assert "Traceback" not in bot.program.log
