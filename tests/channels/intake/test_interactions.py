"""Commands and clicks that run exactly once, even if the process dies."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels.access import AccessRules
from channels.commands.handlers import PRIVATE_COMMANDS, CommandHandler
from channels.commands.syntax import CommandName
from channels.discord.interactions.handler import DiscordIntakeHandler
from channels.i18n import messages as words
from channels.intake import handler as intake_handler
from channels.slack.interactions.handler import SlackIntakeHandler
from chatrig.models import CallTool
from chatrig.slack import SlackSimulator
from core.errors import StoreError, SurfaceError
from core.inbox import entries as queue_module
from core.store.schema import IS_PENDING, inbox
from core.tools.tool import Tool, to_adk_tool
from tests.channels.platforms import run_conversation, run_simulator, wait_for_answer
from tests.channels.wiring import wait_until

MODEL = "openai/other"
CHOSEN = words.MODEL_CHANGED.format(model=MODEL)


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "POLL_SECONDS", 0.05)


async def choose_model(simulator: Any) -> None:
    if isinstance(simulator, SlackSimulator):
        await simulator.run_command("ada", "general", "/model", MODEL)
    else:
        await simulator.run_command("ada", "general", "model", name=MODEL)


async def list_interactions(bot: Any) -> list[Any]:
    async with bot.database.read() as connection:
        return list((await connection.execute(sa.select(inbox).where(IS_PENDING))).all())


def list_confirmations(simulator: Any) -> list[str]:
    return [m.text for m in simulator.messages("general") if CHOSEN.replace("`", "") in m.text.replace("`", "")]


async def test_the_next_process_runs_an_acknowledged_command_once(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, run = asyncio.Event(), CommandHandler.run

    async def start_and_hang(*_: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    async with run_conversation(simulator, tmp_path, "one") as chat:
        await chat.say("one")
        await wait_for_answer(chat, "one")
        await chat.bot.wait_for_turns(1)
        monkeypatch.setattr(CommandHandler, "run", start_and_hang)
        giving = asyncio.create_task(choose_model(simulator))
        await asyncio.wait_for(started.wait(), 30)
        (row,) = await list_interactions(chat.bot)
        assert all(secret not in str(row.payload) for secret in ("response_url", "trigger_id", "https://"))
    monkeypatch.setattr(CommandHandler, "run", run)
    async with run_conversation(simulator, tmp_path, "two") as chat:
        await simulator.wait_for(lambda: list_confirmations(simulator), timeout=20)
        await wait_until_processed(chat.bot)
        assert len(list_confirmations(simulator)) == 1
        (session,) = {row.session for row in await chat.bot.list_inbox_messages() if row.outcome is None}
        assert await chat.bot.services.conversations.get_model(session) == MODEL
    giving.cancel()
    await asyncio.wait([giving])


async def test_the_author_is_told_when_a_worker_died_before_resolving_them(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = SlackIntakeHandler if isinstance(simulator, SlackSimulator) else DiscordIntakeHandler
    identify = handler._identify

    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(intake_handler, "IDENTIFY_SECONDS", 0.01)
    async with run_conversation(simulator, tmp_path, "one") as chat:
        await chat.say("one")
        await wait_for_answer(chat, "one")
        await chat.bot.wait_for_turns(1)
        monkeypatch.setattr(handler, "_identify", hang)
        giving = asyncio.create_task(choose_model(simulator))
        await chat.bot.database.wait_until(partial(list_interactions, chat.bot), lambda found: found)
    giving.cancel()
    await asyncio.wait([giving])
    monkeypatch.setattr(handler, "_identify", identify)
    async with run_conversation(simulator, tmp_path, "two") as chat:
        await wait_until_processed(chat.bot)
        await simulator.wait_for(
            lambda: chat.list_private_messages() == [words.ENGLISH.format_error(SurfaceError.public)]
        )


async def test_an_interaction_that_cannot_be_stored_is_processed(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_store_error(*_: Any) -> None:
        raise StoreError("out of reach")

    async with run_conversation(simulator, tmp_path, "one") as chat:
        await chat.say("one")
        await wait_for_answer(chat, "one")
        await chat.bot.wait_for_turns(1)
        monkeypatch.setattr(queue_module, "build_insert", raise_store_error)
        await choose_model(simulator)
        await simulator.wait_for(lambda: list_confirmations(simulator))


async def test_the_token_of_an_interaction_is_encrypted_in_the_database(tmp_path: Path) -> None:
    async with run_simulator("discord") as server, run_conversation(server, tmp_path, "one") as chat:
        place = server.channels["general"]
        server.permissions.discard("send_messages")  # so the answer is private
        (response,) = await server.run_command("ada", place, "ask", question="why?")
        await wait_until(lambda: response.text == "one")
        (row,) = await chat.bot.list_inbox_messages()
        token = str(row.message["address"]["token"])
        tokens = {part for call in server.calls for part in call.path.split("/")}
        assert token not in tokens
        assert chat.bot.platform.cipher.decrypt(token) in tokens


async def ask_privately(simulator: Any, name: str) -> Any:
    if isinstance(simulator, SlackSimulator):
        return await simulator.run_command("ada", "general", f"/{name}")
    return await simulator.run_command("ada", "general", name)


@pytest.mark.parametrize("name", ["why", "usage"])
async def test_a_private_answer_stays_private_after_its_token_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: CommandName
) -> None:
    async with run_simulator("discord") as server:
        await _abandon_command(server, tmp_path, monkeypatch, name)
        monkeypatch.setattr("chatrig.discord.interactions.delivery.TOKEN_LIFETIME_SECONDS", 0.0)
        async with run_conversation(server, tmp_path, "two") as chat:
            await wait_until_processed(chat.bot)
            hint = PRIVATE_COMMANDS[name].format(command=f"/{name}")
            assert [reply.text for reply in chat.list_replies()][1:] == [hint]


async def test_a_public_export_contains_no_secret_of_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = to_adk_tool(Tool("look", "Looks.", lambda _: {"seen": "a cat"}))
    call = CallTool("look", {"password": "hunter2hunter2"})
    async with run_simulator("discord") as server:
        await _abandon_command(server, tmp_path, monkeypatch, "export", call, core={"tools": [look]})
        monkeypatch.setattr("chatrig.discord.interactions.delivery.TOKEN_LIFETIME_SECONDS", 0.0)
        async with run_conversation(server, tmp_path, "two") as chat:
            await wait_until_processed(chat.bot)
            await server.wait_for(chat.list_files)
            ((_, data),) = chat.list_files()
            assert b"a cat" in data
            assert b"hunter2" not in data


@pytest.mark.parametrize("is_blocked", [False, True])
async def test_the_next_process_checks_access_of_stored_interactions(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_blocked: bool
) -> None:
    person = simulator.people["ada"].id
    await _abandon_command(simulator, tmp_path, monkeypatch, "usage")
    rules = AccessRules(block=frozenset({f"user:{person}"} if is_blocked else ()))
    async with run_conversation(simulator, tmp_path, "two", admins=[str(person)], rules=rules) as chat:
        word = words.USER_NOT_ALLOWED if is_blocked else words.USAGE_ALL
        await simulator.wait_for(
            lambda: [message for message in chat.list_private_messages() if word in message], timeout=20
        )
        await wait_until_processed(chat.bot)


async def _abandon_command(
    simulator: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *script: Any, **kwargs: Any
) -> None:
    """Run a bot that answers one message; stop it while it runs the command `name`.

    Args:
        script: the model's answers.
    """
    started, run = asyncio.Event(), CommandHandler.run

    async def start_and_hang(*_: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    async with run_conversation(simulator, folder, *script, "one", **kwargs) as chat:
        await chat.say("one")
        await wait_for_answer(chat, "one")
        await chat.bot.wait_for_turns(1)
        monkeypatch.setattr(CommandHandler, "run", start_and_hang)
        giving = asyncio.create_task(ask_privately(simulator, name))
        await asyncio.wait_for(started.wait(), 30)
    monkeypatch.setattr(CommandHandler, "run", run)
    giving.cancel()
    await asyncio.wait([giving])


async def wait_until_processed(bot: Any) -> None:
    """Wait until the database has no pending interaction."""
    await bot.database.wait_until(partial(list_interactions, bot), lambda found: not found)
