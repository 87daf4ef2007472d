"""Commands and clicks that the bot acknowledged before SIGKILL run exactly once."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import ASK
from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.models import CallTool, ReceivedRequest, ScriptedResponse
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import StartBot
from tests.fixtures.buttons import wait_for_button

CALLBACK = "POST /interactions/{interaction}/{token}/callback"
ANSWER = "PATCH /webhooks/{application}/{token}/messages/{message}"

#: Seconds by which Discord delays an acknowledgement; the stored row must be visible before.
SLOW_ACK_SECONDS = 2.0

PAYING = """
from pathlib import Path
from core.tools import Tool
def paid(_arguments):
    with Path("paid").open("a") as book:
        book.write("paid\\n")
    return "paid"
pay = Tool("pay", "Pays.", paid, require_confirmation=True)
"""


def clerk(request: ReceivedRequest) -> ScriptedResponse:
    if "pay" not in request.text:
        return f"{len(request.text.split())} words."
    return (
        "It is paid." if any("paid" in text for role, text in request.messages if role == "tool") else CallTool("pay")
    )


async def test_acknowledged_interactions_survive_the_process_and_run_once(
    start: StartBot, discord: DiscordSimulator, tmp_path: Path
) -> None:
    (tmp_path / "paying.py").write_text(PAYING)
    file = tmp_path / ".parley" / "parley.db"
    bot = await start(TOOLS="paying:pay")
    bot.answer = clerk
    bank, square = discord.add_channel("bank"), discord.add_channel("square")
    message = await discord.post_message("grace", square, "The sky is green.")

    def list_bot_messages(place: str) -> list[DiscordMessage]:
        return [m for m in discord.messages(place) if m.author.id == discord.bot_id and m.ephemeral_to is None]

    def list_last_words(question: DiscordMessage) -> list[str]:
        return [m.text.rpartition(" ")[2] for m in list_bot_messages(question.channel.name) if m.reply_to is question]

    await discord.post_message("ada", bank, f"<@{discord.bot_id}> pay")
    (request,) = await discord.wait_for(lambda: [m for m in list_bot_messages("bank") if words.APPROVE in m.buttons])

    discord.faults.delay(ANSWER, 60, times=2)
    (response,) = await discord.run_command("ada", "general", "ask", question="one two three")
    (about,) = await discord.run_message_command("ada", message, words.ASK_ABOUT)
    discord.faults.delay(CALLBACK, SLOW_ACK_SECONDS)
    pressing = asyncio.create_task(discord.click_button("ada", request, request.buttons[words.APPROVE]))
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        await wait_for_pending(database, 3)
        database.execute("BEGIN IMMEDIATE")  # no other row is written before the process is gone
        assert await pressing == []
        assert (response.loading, about.loading) == (True, True)
        await bot.program.stop(signal.SIGKILL)
    await bot.wait_until_disconnected()
    assert not (tmp_path / "paid").exists()

    await bot.start()
    await discord.wait_for(lambda: [m.text for m in list_bot_messages("bank")][-1:] == ["It is paid."], timeout=60)
    assert (tmp_path / "paid").read_text() == "paid\n"
    await discord.wait_for(lambda: list_last_words(response) == list_last_words(about) == ["words."], timeout=60)
    assert response.text == "> one two three"
    assert about.text.startswith("> The sky is green.")
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM inbox WHERE kind = 'message'").fetchone() == (3,)
        await wait_for_pending(database, 0)


async def test_slack_interactions_survive_sigkill_and_run_once(
    start: StartBot, slack: SlackSimulator, tmp_path: Path
) -> None:
    file = tmp_path / ".parley" / "parley.db"
    bot = await start()
    bot.answer = clerk
    question = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> one two")
    answer, rating = await wait_for_button(
        slack, words.GOOD_ANSWER, lambda: slack.messages("general", thread_ts=question.ts)
    )
    report = await slack.post_message("grace", "random", "The sky is green.")
    assert await slack.use_shortcut("ada", report, ASK)
    (form,) = await slack.wait_for(lambda: slack.modals("ada"))

    slack.faults.delay(("response_url", "chat.postEphemeral", "chat.postMessage"), 60, times=3)
    assert await slack.click_button("ada", answer, rating)
    responses = await slack.run_command("ada", "general", "/model", "openai/scripted")
    assert await slack.submit_modal(form, prompt="one two three")
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        await wait_for_pending(database, 3)
        await slack.wait_for(lambda: not slack.faults.has_pending("delay"), timeout=60)
        await bot.program.stop(signal.SIGKILL)
    await bot.wait_until_disconnected()
    assert responses == []

    await bot.start()

    def list_texts() -> list[str]:
        return [message.text for message in slack.messages("random", thread_ts=report.ts)]

    def list_private_texts() -> list[str]:
        return [message.text for message in slack.messages("general") if message.ephemeral_to]

    await slack.wait_for(lambda: len(list_private_texts()) == 2, timeout=60)
    chosen = words.MODEL_CHANGED.format(model="openai/scripted")
    assert sum(text == chosen for text in list_private_texts()) == 1
    await slack.wait_for(lambda: list_texts()[-1].endswith("words."), timeout=60)
    assert list_texts()[1] == "**ada**: one two three"
    with closing(sqlite3.connect(file)) as database:
        await wait_for_pending(database, 0)
    assert len(list_private_texts()) == 2
    assert len(list_texts()) == 3


async def wait_for_pending(database: sqlite3.Connection, count: int) -> None:
    """Wait until the database has `count` rows of pending interactions."""
    async with asyncio.timeout(60):
        pending = "SELECT count(*) FROM inbox WHERE outcome = 'pending'"
        while database.execute(pending).fetchone() != (count,):  # noqa: ASYNC110 (it is told nowhere)
            await asyncio.sleep(0.01)
