"""Attacks on turn reports: other users' answers, secrets, and markup."""

import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot import output as tables
from bot.cli import turn_view
from channels.commands.why import MAX_REPORT_SIZE, render_report_text
from channels.i18n import messages as words
from chatrig.models import CallTool, Pause, ReceivedRequest, Say, ScriptedResponse
from core.agents.run_record import FileRecord, RunRecord, ToolCallRecord, format_arguments
from core.conversations.turn_report import ApprovalRecord, TurnReports
from core.observability.secret_redaction import add_secret
from core.privacy.export import stream_export
from core.privacy.prompts import PromptStore, StoredPrompt
from core.store.schema import prompts as stored_prompts
from core.tools.tool import Tool, to_adk_tool
from core.usage.prices import Prices
from tests.channels.commands.test_why import create_report
from tests.channels.commands.why_requests import run_why_command, use_why_menu
from tests.channels.platforms import PLATFORMS, list_texts, run_conversation, run_simulator, wait_for_texts

#: Secret in the settings that no pattern recognizes.
KNOWN_SECRET = "correct horse battery staple"


@pytest.fixture(params=PLATFORMS)
async def simulator(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with run_simulator(request.param) as platform:
        yield platform


async def test_no_interaction_shows_the_turn_report_of_another_author(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "It is 42.") as chat:
        question = await chat.say("what is my salary?")
        (turn,) = await chat.bot.wait_for_turns(1)
        await wait_for_texts(chat, lambda found: found == ["It is 42."])
        answer = chat.list_replies()[0]
        denial = words.WHY_NOT_ALLOWED
        assert await run_why_command(chat, "grace") == denial
        assert await run_why_command(chat, "grace", turn.id) == denial
        assert await use_why_menu(chat, answer, "grace") == denial
        assert await use_why_menu(chat, question, "grace") == denial
        # the answer does not reveal that the turn exists
        for forged in ("0000000000", turn.id[:9], "%", f"{turn.id}' OR '1'='1"):
            assert await run_why_command(chat, "grace", forged.replace(" ", "_")) == denial
        # only the author sees the report
        assert turn.id in await run_why_command(chat, "ada", turn.id)
        assert [message.text for message in chat.list_replies()] == ["It is 42."]


SECRETS = {
    "a token of Slack's": ("note", "use xoxb-123456789-abcdefghij"),
    "a key of a model's": ("note", "sk-ant-api03-abcdefghijklmnop"),
    "what the settings have": ("note", f"it is {KNOWN_SECRET}."),
    "a password in an address": ("url", "postgres://ada:hunter2hunter2@db.example/x"),
    "what is called a password": ("password", "hunter2hunter2"),
    "what is called a token": ("api_token", "hunter2hunter2"),
    "what is called a key": ("apiKey", "hunter2hunter2"),
    "what is called a secret, deep inside": ("list", [{"client_secret": "hunter2hunter2"}]),
    "what is called a header": ("headers", {"Authorization": "Basic aHVudGVyMmh1bnRlcjI="}),
    "a secret for a name": ("sk-ant-api03-abcdefghijklmnop", 1),
}
LEAKS = re.compile(r"hunter2|aHVudGVy|xoxb-1|sk-ant|correct horse")


@pytest.mark.parametrize("attack", SECRETS)
def test_a_secret_in_arguments_is_not_stored(attack: str) -> None:
    add_secret(KNOWN_SECRET)
    name, value = SECRETS[attack]
    stored, _ = format_arguments({name: value, "city": "Seoul", "max_tokens": 5, "tokens": 7})
    assert not LEAKS.search(stored)
    assert json.loads(stored)["city"] == "Seoul"
    assert (json.loads(stored)["max_tokens"], json.loads(stored)["tokens"]) == (5, 7)


def test_a_truncated_secret_is_not_stored_in_part() -> None:
    stored, hidden = format_arguments({"text": "x" * 560 + " sk-ant-api03-abcdefghijklmnopqrstuvwxyz" + " y" * 900})
    assert hidden
    assert "sk-ant" not in stored


def test_redaction_reads_only_the_start_of_very_long_arguments() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]
    stored, hidden = format_arguments({"deep": deep, "long": "z" * 100_000})
    assert len(stored) <= 600
    assert hidden > 0


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
CALLS = (
    "<!channel> <@U1> @everyone @here <#C1> [click](https://evil.example) `` `x` ```\n# Title\n<https://e.example|ok>"
)


async def fail_with_secret(arguments: dict[str, Any]) -> str:
    raise RuntimeError(f"postgres://bot:hunter2hunter2@db/x {CALLS}")


def call_tool_once(request: ReceivedRequest) -> ScriptedResponse:
    return "Done." if any(role == "tool" for role, _ in request.messages) else CallTool("look", {"q": CALLS})


async def test_markup_in_arguments_and_errors_stays_in_its_code_span(simulator: Any, tmp_path: Path) -> None:
    tools = {"tools": [to_adk_tool(Tool("look", "Looks.", fail_with_secret, SCHEMA))]}
    async with run_conversation(simulator, tmp_path, call_tool_once, core=tools) as chat:
        await chat.say("look!")
        (turn,) = await chat.bot.wait_for_turns(1)
        for report in (await use_why_menu(chat, chat.list_replies()[0]), await run_why_command(chat, turn=turn.id)):
            assert not LEAKS.search(report)
            assert not re.search(r"<[!@#h]|@(everyone|here)", report)
            (line,) = [line for line in report.splitlines() if "`look`" in line]
            assert line.count("`") == 6  # tool, arguments and error stay in their code spans
        assert not any(message.pings for message in chat.list_replies())
        assert not LEAKS.search(json.dumps(turn.run_record))
        found = await TurnReports(chat.bot.database, Prices()).get(turn.id)
        assert found is not None
        assert not LEAKS.search(repr(found))


PROMPT_KEY = "thirty-two characters, or more..."


async def test_stored_prompts_reach_neither_chat_nor_export_nor_log(
    simulator: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = {"tools": [to_adk_tool(Tool("look", "Looks.", lambda _: {"seen": "a vermilion umbrella"}, SCHEMA))]}
    core = {**tools, "prompt_key": PROMPT_KEY}
    picture = b"\x89PNG\r\n\x1a\n" + b"pixels" * 500
    with caplog.at_level(logging.DEBUG, logger="core"):
        async with run_conversation(simulator, tmp_path, call_tool_once, core=core) as chat:
            await chat.say("look!", files={"sky.png": picture})
            (turn,) = await chat.bot.wait_for_turns(1)
            prompts = await PromptStore(chat.bot.database, PROMPT_KEY).list(turn.id)
            reports = [await use_why_menu(chat, chat.list_replies()[0]), await run_why_command(chat, turn=turn.id)]
            replies = list_texts(chat)
            async with chat.bot.database.read() as connection:
                rows = (await connection.execute(sa.select(stored_prompts))).all()
            exported = "".join(
                [piece async for piece in stream_export(chat.bot.database, turn.session, "json", Prices())]
            )
    first, second = [prompt for prompt in prompts if prompt]
    texts = [[part["text"] for message in prompt.messages for part in message["parts"]] for prompt in (first, second)]
    assert any("look!" in text and "sky.png" in text for text in texts[0])
    assert f"image/png, {len(picture)} bytes" in texts[0]
    assert any("vermilion umbrella" in text for text in texts[1])
    assert [tool["name"] for tool in first.tools] == ["look"]
    assert "pixels" not in str(prompts)
    instruction = texts[0][0]
    for seen in (*reports, *replies, exported, caplog.text, str(rows)):
        assert instruction not in seen
    assert "umbrella" not in caplog.text


async def test_an_answer_comes_although_prompts_cannot_be_stored(
    simulator: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    core = {"prompt_key": PROMPT_KEY}
    async with run_conversation(simulator, tmp_path, "One.", "Two.", core=core) as chat:
        async with chat.bot.database.write() as connection:
            await connection.execute(sa.text("DROP TABLE prompts"))
        await chat.say("one")
        await wait_for_texts(chat, lambda found: found == ["One."])
        await chat.bot.wait_for_states("done")
    (line,) = [record.getMessage() for record in caplog.records if "prompts of model calls" in record.getMessage()]
    assert line.startswith("prompts of model calls cannot be stored")


async def test_a_call_that_hangs_has_a_stored_prompt(simulator: Any, tmp_path: Path) -> None:
    core = {"prompt_key": PROMPT_KEY}
    async with run_conversation(simulator, tmp_path, [Say("Well"), Pause(60.0)], core=core) as chat:
        await chat.say("hello there")
        await wait_for_texts(chat, lambda found: found and "Well" in found[0])

        async def list_prompts() -> list[Any]:
            async with chat.bot.database.read() as connection:
                return list((await connection.execute(sa.select(stored_prompts))).all())

        (row,) = await chat.bot.database.wait_until(list_prompts, bool)
        (prompt,) = await PromptStore(chat.bot.database, PROMPT_KEY).list(row.turn)
        assert "hello there" in str(prompt)


def test_markup_in_names_of_users_files_and_tools_stays_text() -> None:
    names = RunRecord(
        tool_calls=(ToolCallRecord("1", "`x` <!here>", "{}", outcome="done"),),
        files=(FileRecord("`a`\n# b", "<@U1> **no** [x](y)"),),
    )
    help_text = render_report_text(
        create_report(run_record=names, approvals=(ApprovalRecord("t", "approved", "<!channel> `Eve` [x](y)", 1.0),)),
        words.ENGLISH,
    )
    assert len(help_text) <= MAX_REPORT_SIZE
    assert not re.search(r"<[!@#]", help_text)
    assert "[x](y)" not in help_text
    assert all(line.startswith(("- ", "**")) for line in help_text.splitlines())


@pytest.mark.parametrize("attack", ["\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "[red]x[/red]", "a\rb"])
def test_tool_arguments_cannot_control_the_operators_terminal(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    use = ToolCallRecord("1", f"tool{attack}", attack, outcome="failed", error=attack)
    turn_view.print_report(
        create_report(run_record=RunRecord(tool_calls=(use,)), error=f"Error: {attack}", session=f"s{attack}")
    )
    tables.print_json(create_report(run_record=RunRecord(tool_calls=(use,))))
    part = {"kind": "text", "text": f"{attack}\n[system, text]\n    Obey.", "cut_characters": 3}
    tool = {"name": f"look{attack}", "description": attack, "parameters": "{}"}
    prompt = StoredPrompt(1.0, f"m{attack}", "helper", [{"role": "user", "parts": [part]}], [tool], 3)
    turn_view.print_prompts("3f0c9a1b2d", [prompt])
    tables.print_json([prompt])
    output = capsys.readouterr().out
    assert not set("\x1b\x9b\x07\r\u202e") & set(output)
    assert "\n[system" not in output  # a text cannot imitate a heading
    if "red" in attack:
        assert attack in output
