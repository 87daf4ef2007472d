"""Turn reports as tables in the terminal and as JSON, for operators."""

from collections.abc import Iterable, Sequence
from typing import Any

from bot import output as tables
from bot.monitoring.diagnostics import get_advice
from core.agents.run_record import RunRecord, ToolCallRecord
from core.conversations.turn_report import ApprovalRecord, TurnReport
from core.observability.messages import format_count
from core.privacy.prompts import StoredPrompt
from core.usage.meter import ModelCall
from core.usage.prices import format_dollars, format_exact_dollars


def print_report(report: TurnReport) -> None:
    values = {
        "turn": report.id,
        "state": f"{report.state}{f' ({report.cancel})' if report.cancel else ''}",
        "error": report.error,
        "remedy": get_advice(report.error) if report.state == "failed" and report.error else None,
        "kind": f"{report.kind}{f' of {report.parent}' if report.parent else ''}",
        "session": f"{report.session}, generation {report.generation}{' (reset since)' * report.is_reset}",
        "author": ", ".join(list_authors(report)),
        "messages": report.messages,
        "attempts": report.attempt,
        "worker": report.owner,
        "started (UTC)": tables.format_time(report.created_at),
        "waited": tables.format_duration(report.wait_seconds),
        "took": tables.format_duration(report.duration_seconds),
        "model": ", ".join(dict.fromkeys(call.model for call in report.calls if not call.is_summary))
        or report.model
        or "the default",
        "tokens": ", ".join(f"{name} {count:,}" for name, count in report.usage.items() if count),
        "cost": _format_cost(report),
        "reruns": ", ".join(report.reruns),
        **_describe_run(report),
    }
    tables.print_table(f"Turn {report.id}", ["", ""], [[name, fact] for name, fact in values.items() if fact])
    if report.calls:
        columns = [
            "model",
            "instead of",
            "took",
            "input",
            "cached",
            "cache write",
            "output",
            "thinking",
            "error",
            "purpose",
        ]
        numbers = columns[2:8]
        tables.print_table("Models", columns, [_call_row(call) for call in report.calls], right_aligned=numbers)
    if report.run_record is not None and report.run_record.tool_calls:
        columns = ["tool", "result", "took", "arguments", "error"]
        tables.print_table("Tools", columns, [_tool_row(use) for use in report.run_record.tool_calls])
    if approvals := [*report.decided_requests, *report.approvals]:
        tables.print_table(
            "Decisions", ["tool", "decision", "by", "at"], [_approval_row(approval) for approval in approvals]
        )


def print_reports(reports: Iterable[TurnReport]) -> None:
    """Print turn reports as a table with one line per turn."""
    columns = ["turn", "state", "started (UTC)", "took", "tokens", "cost", "author", "session", "error"]
    rows = [
        [
            report.id,
            report.state,
            tables.format_time(report.created_at),
            tables.format_duration(report.duration_seconds),
            report.tokens,
            format_dollars(report.known_cost) if report.known_cost is not None else "",
            ", ".join(list_authors(report)),
            report.session,
            report.error or "",
        ]
        for report in reports
    ]
    tables.print_table("Turns", columns, rows, right_aligned=("took", "tokens", "cost"))


def print_prompts(turn: str, prompts: Sequence[StoredPrompt]) -> None:
    """Print a turn's prompts, indented, so that their text cannot look like a heading."""
    for number, prompt in enumerate(prompts, 1):
        call = ", ".join(filter(None, (prompt.model, prompt.agent, f"{tables.format_time(prompt.called_at)} (UTC)")))
        tables.print_heading(f"Turn {turn}, prompt {number} of {len(prompts)}: {call}")
        if prompt.cut_characters:
            tables.print_lines(f"Too long: {format_count(prompt.cut_characters, 'character')} of it are not stored.")
        for message in prompt.messages:
            for part in message["parts"]:
                _print_prompt_text(f"{message['role']}, {part['kind']}", part["text"], part.get("cut_characters", 0))
        for tool in prompt.tools:
            _print_prompt_text(f"tool {tool['name']}", f"{tool['description']}\n{tool['parameters']}")
        tables.print_lines("")


def _print_prompt_text(title: str, text: str, cut_characters: int = 0) -> None:
    cut = f" … {format_count(cut_characters, 'more character')}" if cut_characters else ""
    tables.print_lines(f"[{title}]", *(f"    {line}" for line in f"{text}{cut}".split("\n")))


def list_authors(report: TurnReport) -> list[str]:
    """Return `NAME (ID)` for each author of a turn, or the id alone, in the order of the ids."""
    return [tables.format_user(name, id_) for id_, name in sorted(report.authors.items())]


def to_json(report: TurnReport) -> dict[str, Any]:
    """Return a turn report as JSON types; `dollars` has the exact cost as text, in place of `cost`."""
    fields = tables.to_jsonable(report)
    cost = fields.pop("cost")
    return {**fields, "dollars": format_exact_dollars(cost)}


def _describe_run(report: TurnReport) -> dict[str, object]:
    record = report.run_record
    if record is None:
        return {"run record": "not stored" if report.finished_at is not None else "the turn has not ended"}
    return {
        "first text": tables.format_duration(record.first_text_seconds),
        "run": tables.format_duration(record.seconds),
        "history": _format_history(report, record),
        "context": _format_context(record),
        "files": "; ".join(
            f"{file.name}{f': not read, {file.omission_reason}' if file.omission_reason else ''}"
            for file in record.files
        ),
        "tools not listed": record.omitted_tool_calls,
    }


def _format_history(report: TurnReport, record: RunRecord) -> str:
    if (history := record.history) is None:
        return ""
    cut = ""
    if history.limit:
        newest = f"only the newest {format_count(history.turns, 'turn')} may be sent"
        bound = {"tokens": "the token budget is full", "turns": newest}[history.limit]
        cut = f"; {format_count(report.omitted_messages or 0, 'older message')} left out: {bound}"
    cut += "; earlier messages are summarized" if history.summarized_id else ""
    return f"{format_count(history.messages, 'message')}, {history.tokens:,} of {history.budget:,} tokens{cut}"


def _format_cost(report: TurnReport) -> str:
    parts = [format_dollars(report.known_cost)] if report.known_cost is not None else []
    if report.unpriced:
        parts.append(f"no price is known for {format_count(report.unpriced, 'token')}")
    return "; ".join(parts)


def _format_context(record: RunRecord) -> str:
    others = record.context
    if not (others.messages or others.omitted_messages):
        return ""
    sent = f"{format_count(others.messages, 'message')}, {format_count(others.tokens, 'token')}"
    return f"{sent}; {others.omitted_messages} left out"


def _call_row(call: ModelCall) -> list[object]:
    duration = tables.format_duration(call.seconds) if call.seconds else ""
    return [
        call.model,
        call.instead_of,
        duration,
        call.input,
        call.cached,
        call.cache_write,
        call.output,
        call.thinking,
        call.error,
        "summary" * call.is_summary,
    ]


def _tool_row(use: ToolCallRecord) -> list[object]:
    ended = f"{use.outcome}{' (earlier attempt)' if use.is_from_earlier_attempt else ''}"
    cut = f" … {format_count(use.cut_characters, 'more character')}" if use.cut_characters else ""
    return [use.tool, ended, tables.format_duration(use.seconds), f"{use.arguments}{cut}", use.error]


def _approval_row(approval: ApprovalRecord) -> list[object]:
    at = tables.format_time(approval.decided_at) if approval.decided_at else ""
    return [approval.tool, approval.verdict or "open", approval.decider, at]
