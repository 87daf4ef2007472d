"""Turn reports in the terminal, for operators."""

from collections.abc import Iterable
from typing import Any

from bot import output as tables
from core.agents.run_record import RunRecord, ToolCallRecord
from core.conversations.turn_report import ApprovalRecord, TurnReport
from core.usage.meter import ModelCall
from core.usage.prices import format_dollars, format_exact_dollars


def show(report: TurnReport) -> None:
    """Print a report."""
    facts = {
        "turn": report.id,
        "state": f"{report.state}{f' ({report.cancel})' if report.cancel else ''}",
        "error": report.error,
        "kind": f"{report.kind}{f' of {report.parent}' if report.parent else ''}",
        "session": f"{report.session}, generation {report.generation}{' (started over since)' * report.is_reset}",
        "asked by": ", ".join(authors(report)),
        "messages": report.messages,
        "attempts": report.attempt,
        "worker": report.owner,
        "begun (UTC)": tables.short(report.created_at),
        "had waited": tables.span(report.waited),
        "took": tables.span(report.took),
        "model": report.model or "the default",
        "tokens": ", ".join(f"{name} {count:,}" for name, count in report.usage.items() if count),
        "cost": _cost(report),
        "answered again by": ", ".join(report.reruns),
        **_receipt(report),
    }
    tables.show(f"Turn {report.id}", ["", ""], [[name, fact] for name, fact in facts.items() if fact])
    if report.calls:
        columns = [
            "model",
            "in place of",
            "took",
            "read",
            "cached",
            "cache write",
            "written",
            "thought",
            "error",
            "for",
        ]
        numbers = columns[2:8]
        tables.show("Models", columns, [_call(call) for call in report.calls], numbers=numbers)
    if report.receipt is not None and report.receipt.tool_calls:
        columns = ["tool", "how it ended", "took", "arguments", "error"]
        tables.show("Tools", columns, [_tool(use) for use in report.receipt.tool_calls])
    if approvals := [*report.led_by, *report.approvals]:
        tables.show("Decisions", ["tool", "decision", "by", "at"], [_approval(approval) for approval in approvals])


def show_list(reports: Iterable[TurnReport]) -> None:
    """Print reports, one a line."""
    columns = ["turn", "state", "begun (UTC)", "took", "tokens", "cost", "asked by", "session", "error"]
    rows = [
        [
            report.id,
            report.state,
            tables.short(report.created_at),
            tables.span(report.took),
            report.tokens,
            format_dollars(report.known_cost) if report.known_cost is not None else "",
            ", ".join(authors(report)),
            report.session,
            report.error or "",
        ]
        for report in reports
    ]
    tables.show("Turns", columns, rows, numbers=("took", "tokens", "cost"))


def authors(report: TurnReport) -> list[str]:
    """Return the authors as operators see them: by name, where one is known, and by id."""
    return [tables.person(name, id_) for id_, name in sorted(report.authors.items())]


def as_json(report: TurnReport) -> dict[str, Any]:
    """Return a report for machines, with the cost in dollars."""
    fields = tables.jsonable(report)
    return {**fields, "dollars": format_exact_dollars(fields.pop("cost"))}


def _receipt(report: TurnReport) -> dict[str, object]:
    receipt = report.receipt
    if receipt is None:
        return {"receipt": "none is kept" if report.finished_at is not None else "it has not ended"}
    return {
        "first word": tables.span(receipt.first_text_seconds),
        "run": tables.span(receipt.seconds),
        "history": _history(report, receipt),
        "others' words": _others(receipt),
        "files": "; ".join(
            f"{file.name}{f': not read, {file.omission_reason}' if file.omission_reason else ''}"
            for file in receipt.files
        ),
        "more tools": receipt.omitted_tool_calls,
    }


def _history(report: TurnReport, receipt: RunRecord) -> str:
    if (history := receipt.history) is None:
        return ""
    bounds = {"tokens": "there is no room in the budget", "turns": f"only the newest {history.turns} turns are sent"}
    cut = f"; {report.left_out:,} older messages left out: {bounds[history.limit]}" if history.limit else ""
    cut += "; what came before stood in a summary" if history.summarized_id else ""
    return f"{history.messages} messages, {history.tokens:,} of {history.budget:,} tokens{cut}"


def _cost(report: TurnReport) -> str:
    told = [format_dollars(report.known_cost)] if report.known_cost is not None else []
    return "; ".join([*told, *([f"no price is known for {report.unpriced:,} tokens"] if report.unpriced else [])])


def _others(receipt: RunRecord) -> str:
    others = receipt.context
    if not (others.messages or others.omitted_messages):
        return ""
    return f"{others.messages} messages, {others.tokens:,} tokens; {others.omitted_messages} left out"


def _call(call: ModelCall) -> list[object]:
    took = tables.span(call.seconds) if call.seconds else ""
    return [
        call.model,
        call.instead_of,
        took,
        call.input,
        call.cached,
        call.cache_write,
        call.output,
        call.thinking,
        call.error,
        "summary" * call.is_summary,
    ]


def _tool(use: ToolCallRecord) -> list[object]:
    ended = f"{use.outcome}{' (earlier attempt)' if use.is_from_earlier_attempt else ''}"
    more = f" … {use.cut_characters} more characters" if use.cut_characters else ""
    return [use.tool, ended, tables.span(use.seconds), f"{use.arguments}{more}", use.error]


def _approval(approval: ApprovalRecord) -> list[object]:
    at = tables.short(approval.decided_at) if approval.decided_at else ""
    return [approval.tool, approval.verdict or "open", approval.decider, at]
