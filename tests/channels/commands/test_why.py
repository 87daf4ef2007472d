"""Turn reports ("Why?") for the author of a message, on both platforms."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.cli import turn_view
from channels.commands.why import MAX_REPORT_SIZE, MAX_TOOLS, render_report_text
from channels.i18n import messages as words
from chatrig.models import CallTool, Cite, Fail, ReceivedRequest, Say, ScriptedResponse, SendFile
from core.agents.run_record import ContextRecord, FileRecord, RunRecord, ToolCallRecord
from core.conversations.turn_report import ApprovalRecord, TurnReport, TurnReports
from core.sessions.history import HistoryWindow
from core.store.database import Database
from core.tools.tool import Tool, to_adk_tool
from core.usage.meter import CANCELLED, ModelCall
from core.usage.prices import UNITS_PER_DOLLAR, Prices, format_dollars, format_exact_dollars
from tests.channels.commands.why_requests import run_why_command, use_why_menu
from tests.channels.platforms import (
    SlackChat,
    run_conversation,
    wait_for_answer,
    wait_for_texts,
)
from tests.fixtures.inspector_page import run_inspector_page

SCHEMA = {"type": "object", "properties": {"day": {"type": "string"}}}


async def forecast(arguments: dict[str, Any]) -> str:
    if arguments["day"] == "never":
        raise LookupError("there is no such day")
    return "sun"


def call_forecast_twice(request: ReceivedRequest) -> ScriptedResponse:
    """Call the tool for two days, one of which fails, and then answer."""
    calls = [CallTool("forecast", {"day": "monday"}), CallTool("forecast", {"day": "never"})]
    return "Sun on Monday." if any(role == "tool" for role, _ in request.messages) else calls


async def test_the_author_gets_the_turn_report_by_command_and_menu(simulator: Any, tmp_path: Path) -> None:
    tools = {"tools": [to_adk_tool(Tool("forecast", "Tells the weather.", forecast, SCHEMA))]}
    async with run_conversation(simulator, tmp_path, call_forecast_twice, core=tools) as chat:
        assert await run_why_command(chat) == words.WHY_NOT_ALLOWED
        question = await chat.say("how is the weather?")
        await wait_for_answer(chat, "Sun on Monday.")
        (turn,) = await chat.bot.wait_for_turns(1)
        answer = chat.list_replies()[0]
        report = await use_why_menu(chat, answer)
        assert report.splitlines()[0] == words.WHY_TITLE.format(id=turn.id)
        took = r"\(\d+\.\d s\)"
        assert re.search(rf'Tool `forecast` {took}: `{{"day": "monday"}}`\n', report)
        failed = rf'Tool `forecast` failed {took}: `{{"day": "never"}}`; error: `forecast failed: LookupError'
        assert re.search(failed, report)
        assert "Time: first text after" in report
        assert "Model: `" in report
        assert re.search(r"\n- Cost: \$\d", report)
        texts = [await run_why_command(chat), await run_why_command(chat, turn=turn.id)]
        texts += [await use_why_menu(chat, question)]
        assert texts == [report] * 3
        assert [message.text for message in chat.list_replies()] == ["Sun on Monday."]

        # an admin gets the report by menu, command and id, too
        assert await use_why_menu(chat, answer, "grace") == words.WHY_NOT_ALLOWED
        chat.bot.services.access_policy._admins = frozenset({str(chat.simulator.people["grace"].id)})
        assert await use_why_menu(chat, answer, "grace") == report
        assert await use_why_menu(chat, question, "grace") == report
        assert await run_why_command(chat, "grace", turn.id) == report

        # an earlier turn by its id in any form, and the last turn without an id
        if isinstance(chat, SlackChat):
            chat.root = None  # a session of its own
        await chat.say("how is the weather now?")
        _, later = await chat.bot.wait_for_turns(2)
        for anybody in ("ada", "grace"):
            assert (await run_why_command(chat, anybody)).startswith(words.WHY_TITLE.format(id=later.id))
        for copied in (f"`{turn.id}`", f"(turn `{turn.id}`)", f"turn {turn.id.upper()}"):
            assert await run_why_command(chat, turn=copied) == report
        for other in ("0123456789", "turn", "-"):
            assert await run_why_command(chat, turn=other) == words.WHY_NOT_ALLOWED
        chat.bot.services.access_policy._admins = frozenset()
        assert await run_why_command(chat, "grace", turn.id) == words.WHY_NOT_ALLOWED

        # in a message, the command explains its use, and the plain word is a question
        await chat.say("/why")
        await wait_for_texts(chat, lambda found: found[-1] == words.WHY_PRIVATELY.format(command="/why"))
        assert len(await chat.bot.list_turns()) == 2
        await chat.say("why")
        await chat.bot.wait_for_turns(3)


async def test_the_id_of_an_apology_leads_to_the_report_of_the_failed_turn(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, Fail(400, "no")) as chat:
        await chat.say("how is the weather?")
        (turn,) = await chat.bot.wait_for_turns(1)
        assert turn.id in (await wait_for_texts(chat, lambda found: "turn" in found[-1]))[-1]
        report = await run_why_command(chat, turn=turn.id)
        assert words.WHY_FAILED in report
        assert "Time: " in report


async def test_the_menu_of_an_image_leads_to_the_report_with_the_sources(simulator: Any, tmp_path: Path) -> None:
    drawing = [Say("Here:"), SendFile("image/png", b"pixels"), Cite("https://sun.example/today")]
    async with run_conversation(simulator, tmp_path, drawing, "Sun.", core={"vendor": "gemini"}) as chat:
        await chat.say("draw the weather")
        await chat.bot.wait_for_turns(1)
        await chat.say("and now?")
        (turn, _) = await chat.bot.wait_for_turns(2)
        is_slack = isinstance(chat, SlackChat)
        replies = simulator.messages("general")
        (message,) = [reply for reply in replies if (reply.files if is_slack else reply.content.attachments)]
        report = await use_why_menu(chat, message)
        assert report.splitlines()[0] == words.WHY_TITLE.format(id=turn.id)
        assert "https://sun.example/today" in report
        assert await use_why_menu(chat, message, "grace") == words.WHY_NOT_ALLOWED


async def test_a_reset_deletes_the_turn_report(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "Sun.") as chat:
        await chat.say("how is the weather?")
        (turn,) = await chat.bot.wait_for_turns(1)
        assert turn.run_record is not None
        await chat.say("reset")
        await wait_for_texts(chat, lambda found: found[-1] == words.RESET_DONE)
        assert await run_why_command(chat, turn=turn.id) == words.WHY_NOT_ALLOWED
        assert [row.run_record for row in await chat.bot.list_turns()] == [None]
        account = await TurnReports(chat.bot.database, Prices()).get(turn.id)
        assert account is not None
        assert account.is_reset


async def get_inspector_report(database: Database, prices: Prices) -> dict[str, Any]:
    """Return the newest turn report that the bot sends to the simulator's inspector."""
    async with run_inspector_page(database, prices) as (_, received):
        turn: dict[str, Any] = (await received.get())["turn"]
    return turn


async def test_chat_terminal_status_and_inspector_report_the_same_turn(
    simulator: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = {"tools": [to_adk_tool(Tool("forecast", "Tells the weather.", forecast, SCHEMA))]}
    async with run_conversation(simulator, tmp_path, call_forecast_twice, core=tools) as chat:
        await chat.say("how is the weather?")
        await wait_for_answer(chat, "Sun on Monday.")
        (turn,) = await chat.bot.wait_for_turns(1)
        reports = chat.bot.services.turn_reports
        await chat.bot.services.spending.record_ended_turns()
        report = await reports.get(turn.id)
        assert report is not None
        assert (await reports.list(limit=1)) == [replace(report, omitted_messages=None)]
        text = await use_why_menu(chat, chat.list_replies()[0])
        turn_view.print_report(report)
        terminal = capsys.readouterr().out
        turn_view.print_reports([report])
        (line,) = [line for line in capsys.readouterr().out.splitlines() if turn.id in line]
        inspector = await get_inspector_report(chat.bot.database, reports.prices)
        status = await chat.bot.services.conversations.get_status(turn.session)

        assert report.known_cost
        cost, name = format_dollars(report.known_cost), next(iter(report.authors.values()))
        assert name
        assert f"Cost: {cost}" in text
        assert (cost in terminal, cost in line, inspector["cost"]) == (True, True, report.known_cost / UNITS_PER_DOLLAR)
        as_json = turn_view.to_json(report)
        assert ("cost" in as_json, as_json["dollars"]) == (False, format_exact_dollars(report.cost))
        assert (name in terminal, name in line) == (True, True)
        assert report.tokens == status.used_tokens == inspector["tokens"]
        assert f"{report.tokens:,}" in line
        read, written = (int(n.replace(",", "")) for n in re.findall(r"tokens: ([\d,]+) input, ([\d,]+)", text)[0])
        assert read + written == report.tokens
        took = f"{report.duration_seconds:.1f} s"
        assert (took in text, took in terminal, took in line) == (True, True, True)
        assert inspector["seconds"] == pytest.approx(report.duration_seconds, abs=0.001)
        for report_text in (text, terminal):
            assert report_text.count("monday") == report_text.count("never") == 1
            assert "failed" in report_text


def create_report(**kwargs: Any) -> TurnReport:
    facts: dict[str, Any] = {
        "id": "t1",
        "session": "slack:T1:C1:1.0",
        "generation": 1,
        "kind": "message",
        "parent": None,
        "state": "done",
        "attempt": 1,
        "owner": None,
        "model": None,
        "cancel": None,
        "error": None,
        "authors": {"ada": "Ada"},
        "messages": 1,
        "chunks": 1,
        "wait_seconds": 0.0,
        "duration_seconds": 3.25,
        "tokens": 0,
        "usage": {},
        "calls": (),
        "cost": 0,
        "unpriced": 0,
        "run_record": RunRecord(),
        "omitted_messages": 0,
        "approvals": (),
        "decided_requests": (),
        "reruns": (),
        "created_at": 100.0,
        "finished_at": 103.25,
        "is_reset": False,
        "app": "app",
    }
    return TurnReport(**{**facts, **kwargs})


def test_the_turn_report_lists_attachments_and_omitted_history() -> None:
    record = RunRecord(
        history=HistoryWindow(messages=12, tokens=3400, budget=32_000, limit="tokens", newest_id=90),
        context=ContextRecord(messages=3, tokens=120, omitted_messages=2),
        files=(FileRecord("a.pdf"), FileRecord("b.zip", "I cannot read files of this type")),
    )
    report = render_report_text(
        create_report(run_record=record, omitted_messages=40, kind="retry", attempt=2, messages=2), words.ENGLISH
    ).splitlines()
    assert report[1:] == [
        f"- {words.WHY_RETRY}",
        "- It answers 2 messages at once.",
        "- Attempts: 2, because of interruptions.",
        "- History messages: 12, 3,400 tokens",
        "- Older messages left out: 40, because of the limit of 32,000 tokens",
        "- Messages of other people: 3, 120 tokens",
        "- Context messages left out: 2, because of the token limit",
        "- File `a.pdf`: read",
        "- File `b.zip`: not read; I cannot read files of this type",
        "- Time: 3.2 s",
    ]


def test_the_model_of_a_stopped_turn_has_not_failed() -> None:
    calls = (ModelCall("gemini-x", input=1000, output=10, seconds=1.0, error=CANCELLED),)
    report = render_report_text(create_report(state="cancelled", calls=calls), words.ENGLISH)
    assert "- Model: `gemini-x` (1.0 s); calls: 1; tokens: 1,000 input, 10 output" in report.splitlines()


def test_the_turn_report_lists_models_and_fallbacks() -> None:
    calls = (
        ModelCall("gemini-x", input=1000, output=10, thinking=5, seconds=1.0),
        ModelCall("gemini-x", input=2000, output=10, seconds=1.5),
        ModelCall("gemini-x", seconds=0.25, error="ProviderRateLimitError"),
        ModelCall("openai/y", input=10, output=1, instead_of="gemini-x"),
    )
    facts: dict[str, Any] = {"calls": calls, "model": "gemini-x", "usage": {"input": 3010}}
    report = render_report_text(
        create_report(**facts, cost=5 * UNITS_PER_DOLLAR // 1000, unpriced=11), words.ENGLISH
    ).splitlines()
    assert report[1:4] == [
        "- Model: `gemini-x` (2.5 s); calls: 2; tokens: 3,000 input, 25 output",
        "- Model: `gemini-x` failed (0.2 s); calls: 1",
        "- Model: `openai/y` instead of `gemini-x`; calls: 1; tokens: 10 input, 1 output",
    ]
    assert report[4:6] == ["- Cost: $0.0050", f"- {words.WHY_UNPRICED.format(tokens=11)}"]
    assert "Tokens" not in "".join(report)


def test_the_turn_report_counts_the_tokens_of_the_prompt_cache() -> None:
    call = ModelCall("m", input=3000, output=10, cached=2500, cache_write=400)
    report = render_report_text(
        create_report(calls=(call,), usage={"input": 3000, "cached": 2500, "cache_write": 400}), words.ENGLISH
    )
    assert "- Prompt cache: 2,500 tokens read, 400 written" in report.splitlines()


def test_the_turn_report_names_missing_prices_and_summaries() -> None:
    record = RunRecord(history=HistoryWindow(messages=2, tokens=90, budget=32_000, newest_id=90, summarized_id=60))
    calls = (ModelCall("m", input=9, output=2), ModelCall("n", input=7, output=1, is_summary=True))
    lines = render_report_text(create_report(run_record=record, calls=calls, unpriced=19), words.ENGLISH).splitlines()
    assert lines[1:6] == [
        "- Model: `m`; calls: 1; tokens: 9 input, 2 output",
        "- Summarized by `n`; calls: 1; tokens: 7 input, 1 output",
        f"- {words.WHY_UNPRICED.format(tokens=19)}",
        "- History messages: 2, 90 tokens",
        f"- {words.WHY_SUMMARY}",
    ]


def test_the_turn_report_names_the_approver() -> None:
    rulings = (
        ApprovalRecord("pay", "approved", "Grace", 0.0),
        ApprovalRecord("sell", None, "", None),
        ApprovalRecord("buy", "expired", "", 1),
    )
    report = render_report_text(create_report(approvals=rulings), words.ENGLISH)
    assert "`pay`: ✅ Approved by Grace, 1970-01-01 00:00 (UTC)." in report
    assert "`sell`: waits for a decision." in report
    assert f"`buy`: {words.EXPIRED}" in report


def test_the_turn_report_is_short() -> None:
    tools = tuple(ToolCallRecord(str(n), "t" * 300, "x" * 600, 10, 1.0, "failed", "e" * 300) for n in range(50))
    report = render_report_text(
        create_report(
            run_record=RunRecord(tool_calls=tools, omitted_tool_calls=7),
            approvals=(ApprovalRecord("r" * 99, None, "", None),) * 9,
        ),
        words.messages_for("ko"),
    )
    assert len(report) <= MAX_REPORT_SIZE
    assert report.count("t" * 40) <= MAX_TOOLS
    assert report.splitlines()[-1].startswith("- ")


@pytest.mark.parametrize("state", ["running", "failed", "cancelled"])
def test_the_turn_report_is_in_the_language_of_the_author(state: Any) -> None:
    sentences = {"running": words.WHY_RUNNING, "failed": words.WHY_FAILED, "cancelled": words.WHY_STOPPED}
    korean = words.messages_for("ko")
    assert korean(sentences[state]) in render_report_text(create_report(state=state, run_record=None), korean)
