"""Questions, tool results and approvals that an agent requests from users.

The bot is killed at each request, and continues after its restart on both platforms.
"""

import asyncio
import json
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from channels.i18n import messages as words
from chatrig.models import CallTool, Cite, Pause, ReceivedRequest, Say, ScriptedGemini, ScriptedResponse, SendFile
from core.observability.secret_redaction import MASK
from tests.acceptance.conftest import AcceptanceBot, StartBot
from tests.acceptance.platforms import BotConversation, Platform
from tests.acceptance.test_privacy import run_command
from tests.processes.fork_server import ForkServer

SHOP = Path(__file__).parent / "shirt_shop"
PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 500

#: Answer that the agent's schema marks as secret.
VOUCHER = "SHIRT-7319"

#: Answer to the form.
DELIVERY = {"name": "Ada", "count": 2, "wrapping": "box", "voucher": VOUCHER}

#: Texts of the last reply, which has an image and a source.
BEGINNING = "Your shirt:"
ENDING = "It is paid.\n\nSources: [1 shirts.example](https://shirts.example/m)"

#: Texts and bytes that the database stores of a conversation.
MARKERS = (VOUCHER, "It fits.", "shirts.example", PNG.hex())

#: Seconds that both platforms take for each request while the bot posts the image.
LATENCY_SECONDS = 0.2


class ShopModel:
    """Model of the shop's agent: calls both tools, and then answers with an image.

    Attributes:
        may_draw: event before the image; the answer pauses until it is set.
        results: the tool results of each model call, by tool name.
    """

    def __init__(self) -> None:
        self.may_draw = asyncio.Event()
        self.results = list[dict[str | None, str]]()

    def answer(self, request: ReceivedRequest) -> ScriptedResponse:
        if not request.tool_results:
            assert all(answer in request.text for answer in ('"M"', '"Ada"', '"box"', VOUCHER)), request.text
            calls = [CallTool("ask_tailor", {"about": "M"}, id="t1"), CallTool("pay", {"euros": 20}, id="p1")]
            return [Say("Let me ask."), *calls]
        self.results.append({result.name: str(result.content) for result in request.tool_results})
        image = SendFile("image/png", PNG)
        return [Say(BEGINNING), Pause(self.may_draw), image, Say("It is paid."), Cite("https://shirts.example/m")]


class Shop:
    """Bot with the shirt shop's agent, and one conversation on each platform."""

    def __init__(self, bot: AcceptanceBot, database: Path = Path()) -> None:
        self.bot = bot
        self.conversations = {platform: platform.start_conversation() for platform in bot.platforms}
        self._database = database

    async def run(self, scenario: Callable[[Platform, BotConversation], Awaitable[None]]) -> None:
        await asyncio.gather(
            *(scenario(platform, conversation) for platform, conversation in self.conversations.items())
        )

    async def kill(self) -> None:
        await self.bot.program.stop(signal.SIGKILL)
        await self.bot.wait_until_disconnected()

    async def restart(self) -> None:
        with sqlite3.connect(self._database) as database:  # Discord: a client connects once in five seconds
            database.execute("UPDATE channels SET next_identify_at = NULL")
        await self.bot.start()

    def read(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self._database) as database:
            return database.execute(query).fetchall()


async def wait_for_state(platform: Platform, conversation: BotConversation, *, buttons: str, marks: int) -> None:
    """Wait until buttons are shown, and until `marks` replies have a check mark.

    Args:
        buttons: the labels, separated by spaces.
        marks: the number of decided requests.
    """
    wanted = set(buttons.split())

    def is_shown() -> bool:
        texts = [reply.text for reply in conversation.replies()]
        return wanted <= set(conversation.all_button_labels()) and sum("✅" in text for text in texts) == marks

    await platform.wait_for(is_shown)


def has_private_messages(conversation: BotConversation, user: str, count: int) -> bool:
    return len(conversation.private_messages(user)) == count


async def refuse(platform: Platform, conversation: BotConversation, *labels: str) -> None:
    """Click buttons as Grace, and check that each click is denied privately.

    Also checks that no reply changes.
    """
    before = [reply.text for reply in conversation.replies()]
    for label in labels:
        count = len(conversation.private_messages("grace")) + 1
        await conversation.press(label, user="grace")
        await platform.wait_for(partial(has_private_messages, conversation, "grace", count))
    assert [reply.text for reply in conversation.replies()] == before
    assert all(text.startswith("Only the author can") for text in conversation.private_messages("grace"))


def is_posting_file(platform: Platform) -> bool:
    calls = platform.simulator.calls
    if platform.name == "slack":
        return any(call.method == "files.completeUploadExternal" for call in calls)
    return any(call.files for call in calls)


async def ask(platform: Platform, conversation: BotConversation) -> None:
    await conversation.say("a shirt, please")
    await wait_for_state(platform, conversation, buttons=f"S M L {words.ANSWER}", marks=0)


async def choose(platform: Platform, conversation: BotConversation) -> None:
    await refuse(platform, conversation, "M", words.ANSWER)
    assert await conversation.press("M")


async def open_form(platform: Platform, conversation: BotConversation) -> None:
    await wait_for_state(platform, conversation, buttons=words.ANSWER, marks=1)
    assert await conversation.press(words.ANSWER)
    await conversation.wait_for_form()


async def submit_form(_: Platform, conversation: BotConversation) -> None:
    await conversation.chat.fill_form("Ada", "2", "option:1", VOUCHER)


async def see_requests(platform: Platform, conversation: BotConversation) -> None:
    await wait_for_state(platform, conversation, buttons=f"{words.ANSWER} {words.APPROVE}", marks=2)


async def approve(platform: Platform, conversation: BotConversation) -> None:
    await refuse(platform, conversation, words.APPROVE, words.ANSWER)
    assert await conversation.press(words.APPROVE)


async def answer_tool(platform: Platform, conversation: BotConversation) -> None:
    await wait_for_state(platform, conversation, buttons=words.ANSWER, marks=3)
    assert await conversation.press(words.ANSWER)
    await conversation.wait_for_form()
    await conversation.chat.fill_form("It fits.")


async def see_beginning(platform: Platform, conversation: BotConversation) -> None:
    await platform.wait_for(lambda: conversation.replies()[-1].text.startswith(BEGINNING))
    platform.simulator.faults.set_latency(LATENCY_SECONDS)


async def see_post(platform: Platform, _: BotConversation) -> None:
    await platform.wait_for(lambda: is_posting_file(platform))


async def see_file(platform: Platform, conversation: BotConversation) -> None:
    platform.simulator.faults.set_latency(0)
    await platform.wait_for(conversation.file_names)


async def see_end(platform: Platform, conversation: BotConversation) -> None:
    await platform.wait_for(lambda: any(reply.text.endswith(ENDING) for reply in conversation.replies()))
    await wait_for_state(platform, conversation, buttons="", marks=4)


#: Steps after each of which the bot is killed.
STEPS = (ask, choose, open_form, submit_form, see_requests, approve, answer_tool)


async def test_each_request_of_an_agent_outlives_kills_and_is_answered_once(start: StartBot, tmp_path: Path) -> None:
    model = ShopModel()
    async with ScriptedGemini(model.answer) as gemini:
        more_settings = {"DATA_DIR": str(tmp_path), "TURN_MAX_ATTEMPTS": "20"}
        shop = Shop(await start(**settings(gemini), **more_settings), tmp_path / "parley.db")
        for step in STEPS:
            await shop.run(step)
            await shop.kill()
            await shop.restart()
        await shop.run(see_beginning)
        model.may_draw.set()
        await shop.run(see_post)
        await shop.kill()
        await shop.run(see_file)
        await shop.restart()
        await shop.run(see_end)
        assert await shop.bot.program.stop() == 0
    for conversation in shop.conversations.values():
        assert conversation.file_names() == ["image-1.png"]
        texts = [reply.text for reply in conversation.replies() if reply.text]
        assert len(texts) == 7, texts
        assert texts[-1] == f"{BEGINNING}\n\n📎 `image-1.png`\n\n{ENDING}"
        assert VOUCHER not in str(conversation.replies())
    expected = {"ask_tailor": "{'result': 'It fits.'}", "pay": "{'result': '20 euros are paid'}"}
    assert model.results
    assert all(result == expected for result in model.results)
    assert VOUCHER not in shop.bot.program.log
    check_storage(shop)


async def test_answers_images_and_sources_are_exported_and_forgotten_on_postgresql(
    start: StartBot, fork_server: ForkServer, postgres: str, tmp_path: Path
) -> None:
    model = ShopModel()
    model.may_draw.set()
    async with ScriptedGemini(model.answer) as gemini:
        shop = Shop(await start(**settings(gemini), DATABASE_URL=postgres))
        for step in (*STEPS, see_end):
            await shop.run(step)
        stored = await read_database(postgres)
        assert all(marker in stored for marker in MARKERS)
        sessions = json.loads(await run_command(shop.bot.program, fork_server, "sessions --json"))
        for session in sessions:
            command = f"export {session['id']} --json --files {tmp_path / 'files'}"
            exported = await run_command(shop.bot.program, fork_server, command)
            runs = json.JSONDecoder().raw_decode(exported)[0]["runs"]  # a line on the files follows
            assert [run["turn"]["kind"] for run in runs] == ["message", "decision", "decision"]
            answers = [
                decision["answer"] for run in runs for decision in run.get("decisions", ()) if "answer" in decision
            ]
            assert sorted(answers, key=str) == sorted(["M", "It fits.", {**DELIVERY, "voucher": MASK}], key=str)
            assert VOUCHER not in exported
            answer = runs[-1]["messages"][-1]
            assert answer["sources"] == ["https://shirts.example/m"]
            assert [(tmp_path / "files" / file["name"]).read_bytes() for file in answer["files"]] == [PNG]
            assert "deleted" in await run_command(
                shop.bot.program, fork_server, f"forget --session {session['id']} --yes"
            )
        stored = await read_database(postgres)
        assert [marker for marker in MARKERS if marker in stored] == []
        assert await shop.bot.program.stop() == 0


def settings(gemini: ScriptedGemini) -> dict[str, str]:
    return {
        "AGENT": str(SHOP),
        "MODEL": "gemini-test",
        "GOOGLE_API_KEY": "sk-test-key",
        "GOOGLE_BASE_URL": gemini.base_url,
    }


async def read_database(url: str) -> str:
    """Return all rows of all PostgreSQL tables as text, bytes as hexadecimal digits."""
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        names = await connection.scalars(sa.text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))
        rows = [await connection.scalars(sa.text(f'SELECT t::text FROM "{name}" t')) for name in names.all()]
        text = "\n".join(str(row) for each in rows for row in each.all())
    await engine.dispose()
    return text


def check_storage(shop: Shop) -> None:
    """Check that the database has each answer, tool call and file of the shop once.

    Only the run that asked reads the column `unmasked`.
    """
    answers = dict[str, dict[str, list[object]]]()
    assert not [event for (event,) in shop.read("SELECT event FROM messages") if VOUCHER in event]
    as_the_run = "COALESCE(json_extract(unmasked, '$.event'), event)"
    for session, event in shop.read(f"SELECT session, {as_the_run} FROM messages WHERE author = 'user' ORDER BY id"):
        for part in json.loads(event)["content"]["parts"]:
            if response := part.get("function_response"):
                answers.setdefault(session, {}).setdefault(response["id"], []).append(response["response"])
    assert len(answers) == len(shop.conversations)
    wanted = [[{"confirmed": True}], [{"result": "It fits."}], [{"result": "M"}], [{"result": DELIVERY}]]
    for of_session in answers.values():
        assert sorted(of_session.values(), key=str) == sorted(wanted, key=str)
    decisions = shop.read("SELECT tool, decision, count(*) FROM human_requests GROUP BY 1, 2 ORDER BY 1")
    assert decisions == [("adk_request_input", "answered", 4), ("ask_tailor", "answered", 2), ("pay", "approved", 2)]
    assert shop.read("SELECT name, count(*) FROM artifacts GROUP BY 1") == [("image-1.png", 2)]
    calls = shop.read("SELECT state, count(*) FROM tool_calls WHERE tool = 'pay' GROUP BY 1")
    assert calls == [("ended", len(shop.conversations))]
