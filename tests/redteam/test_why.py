"""Attacks on turn reports: other users' answers, secrets, and markup."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import output as tables
from bot.cli import turn_view
from channels.commands.why import MAX_REPORT_SIZE, render_report_text
from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest, ScriptedResponse
from core.agents.run_record import FileRecord, RunRecord, ToolCallRecord, format_arguments
from core.conversations.turn_report import ApprovalRecord, TurnReports
from core.secret_redaction import add_secret
from core.tools.tool import Tool, to_adk_tool
from core.usage.prices import Prices
from tests.channels.commands.test_why import create_report
from tests.channels.commands.why_requests import run_why_command, use_why_menu
from tests.channels.platforms import PLATFORMS, run_conversation, run_simulator, wait_for_texts

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
    output = capsys.readouterr().out
    assert not set("\x1b\x9b\x07\r\u202e") & set(output)
    if "red" in attack:
        assert attack in output
