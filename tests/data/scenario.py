"""Scenario of the dumps: what people do before the bot is killed, and what they see after an upgrade.

Each platform has these conversations, each a channel of that name:

| Channel | When the bot is killed |
| --- | --- |
| work | a running turn with text shown, a waiting message, and a pressed approval that is stored and not done |
| approval | an open approval |
| question | an open question |
| history | an answered message, a file, memories, a rating, a chosen model, a standing approval; it is muted |
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator
from chatrig.models import CallTool, Pause, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from chatrig.slack import SlackSimulator
from core.store.database import Database
from core.store.schema import IS_PENDING, inbox, turns
from tests.acceptance.conftest import AcceptanceBot, Program
from tests.acceptance.platforms import BotConversation, Discord, Platform, Slack
from tests.data.kiosk.agent import CALLS_FILE

CHANNELS = ("work", "approval", "question", "history")

#: Beginning and end of the answer during which the bot is killed.
BEGINNING, ENDING = "Begun.", " Ended."

#: Settings of the bot. The keys are for these tests only.
SETTINGS = {
    "AGENT": str(Path(__file__).with_name("kiosk")),
    "MODELS": "openai/scripted,openai/other",
    "SECRET_KEY": "0123456789abcdef0123456789abcdef",
}

#: Call of each platform that is made while a press is stored and not done, and the seconds by which it is delayed.
#: Slack: it shows the decision. Discord: it acknowledges the press.
_DELAYED_CALLS = {
    "slack": ("chat.update", 60.0),
    "discord": ("POST /interactions/{interaction}/{token}/callback", 2.0),
}


class KioskModel:
    """Model of the agent; its answer follows from the newest message of the request.

    Args:
        may_end: whether the long answer ends.
    """

    def __init__(self, *, may_end: bool) -> None:
        self._end = asyncio.Event()
        if may_end:
            self._end.set()

    def answer(self, request: ReceivedRequest) -> ScriptedResponse:
        role, text = request.messages[-1]
        if role == "tool":
            return "Result: " + re.sub(r"[^\w ]|result", "", text).strip()
        if match := re.search(r"(order|refund) (\d)", text):
            return [Say("One moment."), CallTool(match[1], {"count": int(match[2])})]
        if "choose" in text:
            return CallTool("get_user_choice", {"options": ["S", "M"]})
        if "ticket" in text:
            return CallTool("print_ticket")
        if "write" in text:
            return [Say(BEGINNING), Pause(self._end), Say(ENDING)]
        if "what do you know" in text:
            said = " ".join(text for role, text in request.messages if role == "user")
            return "I know: " + ", ".join(re.findall(r"remember (\w+)", said))
        return "Noted."


@asynccontextmanager
async def prepare_bot(
    url: str, make_program: Callable[[Mapping[str, str]], Program], states: Mapping[str, Any] | None = None
) -> AsyncIterator[AcceptanceBot]:
    """Yield a bot with the agent `kiosk` on both platforms, not yet started.

    Args:
        url: the URL of the database, with the driver.
        make_program: returns the program with these settings.
        states: the states of the platforms by name; None for new platforms.
    """
    states = states or {}
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(SlackSimulator(state=states.get("slack")))
        discord = await stack.enter_async_context(DiscordSimulator(state=states.get("discord")))
        model = KioskModel(may_end=bool(states))
        scripted = await stack.enter_async_context(ScriptedOpenAI(model.answer))
        platforms: list[Platform] = [Slack(slack), Discord(discord)]
        settings = {name: value for platform in platforms for name, value in platform.settings.items()}
        settings |= {
            "MODEL": "openai/scripted",
            "OPENAI_BASE_URL": scripted.base_url,
            "PORT": "0",
            "WHILE_RUNNING": "queue",
        }
        settings |= {"DATABASE_URL": to_setting(url), **SETTINGS}
        bot = AcceptanceBot(make_program(settings), platforms)
        stack.push_async_callback(bot.program.aclose)
        yield bot


def to_setting(url: str) -> str:
    """Return a URL without its driver, as in `DATABASE_URL`."""
    return url.replace("+aiosqlite", "").replace("+asyncpg", "")


async def run_until_killed(bot: AcceptanceBot, database: Database) -> None:
    """Bring about the state of the table above, and kill the bot."""

    async def count(table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        ((number,),) = await database.run(sa.select(sa.func.count()).select_from(table).where(condition))
        return int(number)

    async def has_uncounted() -> bool:
        return bool(await count(turns, turns.c.finished_at.is_not(None) & turns.c.cost.is_(None)))

    async def talk(platform: Platform) -> None:
        for name in CHANNELS:
            await _TALKS[name](bot, platform, platform.start_conversation(name))

    await bot.run_on_all_platforms(talk)
    while await has_uncounted():  # noqa: ASYNC110 - another process writes the rows
        await asyncio.sleep(0.1)
    presses = []
    for number, platform in enumerate(bot.platforms, 1):
        faults = platform.simulator.faults
        faults.delay(*_DELAYED_CALLS[platform.name])
        presses.append(asyncio.create_task(platform.find_conversation("work").press(words.APPROVE)))
        while await count(inbox, IS_PENDING) < number or faults.has_pending("delay"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    await bot.program.stop(signal.SIGKILL)
    await asyncio.gather(*presses)


async def _work(bot: AcceptanceBot, platform: Platform, conversation: BotConversation) -> None:
    await conversation.say("order 3")
    await _wait_for_button(platform, conversation, words.APPROVE)
    await conversation.say("write")
    await bot.wait_for_reply(platform, conversation, lambda text: text.startswith(BEGINNING))
    await conversation.say("I wait")
    await platform.wait_for(conversation.count_reactions, timeout=60)


async def _approval(_bot: AcceptanceBot, platform: Platform, conversation: BotConversation) -> None:
    await conversation.say("order 5")
    await _wait_for_button(platform, conversation, words.APPROVE)


async def _question(_bot: AcceptanceBot, platform: Platform, conversation: BotConversation) -> None:
    await conversation.say("choose")
    await _wait_for_button(platform, conversation, "M")


async def _history(bot: AcceptanceBot, platform: Platform, conversation: BotConversation) -> None:
    await conversation.say("remember blue, and give me the ticket")
    await platform.wait_for(lambda: conversation.file_names() == ["ticket.txt"], timeout=60)
    await platform.wait_for(lambda: "Result: printed" in " ".join(_list_texts(conversation)), timeout=60)
    await _rate(platform, conversation)
    await conversation.say("refund 1")
    await _wait_for_button(platform, conversation, words.ALWAYS_ALLOW)
    assert await conversation.press(words.ALWAYS_ALLOW)
    await bot.wait_for_reply(platform, conversation, lambda text: text == "Result: refunded 1")
    chosen = words.MODEL_CHANGED.format(model="openai/other")
    await bot.ask(platform, conversation, "model openai/other", chosen)
    await bot.ask(platform, conversation, "mute", words.MUTED)


async def _rate(platform: Platform, conversation: BotConversation) -> None:
    """Rate the newest answer: with a button in Slack, in the menu of the message on Discord."""
    if platform.name == "slack":
        assert await conversation.press(words.GOOD_ANSWER)
    else:
        answers = [message for message in platform.simulator.messages("history") if "Result" in message.text]
        await platform.simulator.run_message_command("ada", answers[-1], words.GOOD_ANSWER)
    await platform.wait_for(lambda: conversation.private_messages("ada"), timeout=60)


_TALKS = {"work": _work, "approval": _approval, "question": _question, "history": _history}


async def wait_for_pending_answers(platform: Platform) -> None:
    """Wait for the ends of the running turn, of the waiting message and of the pressed approval."""
    conversation = platform.find_conversation("work")
    await _wait_for_texts(platform, conversation, BEGINNING + ENDING, "Noted.", "Result: ordered 3")


async def check_continuation(bot: AcceptanceBot) -> None:
    """Check that a bot of any version goes on where the killed one was, on all platforms."""

    async def go_on(platform: Platform) -> None:
        work, approval, question, history = map(platform.find_conversation, CHANNELS)
        await wait_for_pending_answers(platform)
        assert await approval.press(words.APPROVE)
        await _wait_for_texts(platform, approval, "Result: ordered 5")
        assert await question.press("M")
        await _wait_for_texts(platform, question, "Result: M")
        await history.say("anybody?", mentions_bot=False)
        await bot.ask(platform, history, "refund 2", "One moment.\n\nResult: refunded 2")
        await bot.ask(platform, history, "what do you know?", "I know: blue")
        assert "Noted." not in _list_texts(history)  # the muted bot did not answer "anybody?"
        assert BEGINNING not in _list_texts(work)  # the answer is in the same message
        for conversation in (work, approval, question, history):
            await platform.wait_for(partial(_has_no_open_buttons, conversation), timeout=60)

    await bot.run_on_all_platforms(go_on)
    calls = await asyncio.to_thread((bot.program.folder / CALLS_FILE).read_text)
    assert sorted(calls.splitlines()) == sorted(2 * ["ordered 3", "ordered 5", "refunded 2"])


def _has_no_open_buttons(conversation: BotConversation) -> bool:
    return not {words.STOP, words.APPROVE, "M"} & set(conversation.all_button_labels())


async def _wait_for_texts(platform: Platform, conversation: BotConversation, *texts: str) -> None:
    """Wait until each of the texts is the text of one reply."""
    try:
        await platform.wait_for(lambda: all(_list_texts(conversation).count(text) == 1 for text in texts), timeout=60)
    except TimeoutError as error:
        raise TimeoutError(f"{_list_texts(conversation)} has not {texts}\n{error}") from None


async def _wait_for_button(platform: Platform, conversation: BotConversation, label: str) -> None:
    await platform.wait_for(lambda: label in conversation.all_button_labels(), timeout=60)


def _list_texts(conversation: BotConversation) -> Sequence[str]:
    return [reply.text for reply in conversation.replies()]
