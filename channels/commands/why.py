"""Turn reports in the chat ("Why this answer?"), for authors and admins."""

import re
from collections.abc import Iterator

from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_utc
from channels.requests.approval_message import decision_text, plain_line
from core.agents.run_record import RunRecord, ToolCallRecord
from core.conversations.turn_report import ApprovalRecord, TurnReport, TurnReports
from core.usage.meter import CANCELLED, ModelCall
from core.usage.prices import format_dollars

#: The most models, tool calls, files, approvals and sources in a report, and the most characters of each.
MAX_MODELS, MAX_TOOLS, MAX_FILES, MAX_APPROVALS, MAX_SOURCES = 3, 6, 4, 3, 8
MAX_ARGUMENTS, MAX_ERROR, MAX_NAME = 110, 100, 50

#: The size of a report in UTF-16 code units. Discord: a message has at most 2,000.
MAX_REPORT_SIZE = 1_900

_WORD = re.compile(r"\w+")

#: Seconds that a message waited for its turn; a shorter wait is not reported.
_MIN_WAIT_SECONDS = 1.0


def find_turn_id(text: str) -> str:
    """Return the last word of a command's argument in lower case: a turn id, which is not checked.

    The argument may also be a pasted error message, which ends with the id.
    """
    found = _WORD.findall(text.lower())
    return found[-1] if found else text


async def render_report(
    reports: TurnReports, turn_id: str | None, author: str, say: MessageCatalog, *, is_admin: bool = False
) -> str:
    """Return the report of a turn as text, for an author of its messages or an admin.

    For other users, an unknown turn, and a turn before a reset, the text says that the user cannot see the report.
    """
    report = await reports.get(turn_id) if turn_id else None
    if report is None or report.is_reset or not (is_admin or author in report.authors):
        return say(words.WHY_NOT_ALLOWED)
    return render_report_text(report, say)


def render_report_text(report: TurnReport, say: MessageCatalog) -> str:
    """Return a turn report as Markdown of at most `MAX_REPORT_SIZE` UTF-16 code units.

    The last lines are replaced by `- …` if the report is longer. Markup in names, arguments and errors has no effect.
    """
    lines = [say(words.WHY_TITLE, id=report.id), *(f"- {line}" for line in _lines(report, say))]
    while len("\n".join(lines).encode("utf-16-le")) // 2 > MAX_REPORT_SIZE:
        lines[-2:] = ["- …"]
    return "\n".join(lines)


def _lines(report: TurnReport, say: MessageCatalog) -> Iterator[str]:
    yield from _outcome(report, say)
    yield from _models(report, say)
    if report.run_record is not None:
        yield from _tools(report.run_record, say)
    for approval in [*report.decided_requests, *report.approvals][:MAX_APPROVALS]:
        yield _approval(approval, say)
    if report.run_record is not None:
        yield from _inputs(report, report.run_record, say)
        yield _time(report, report.run_record, say)
    if report.wait_seconds > _MIN_WAIT_SECONDS:
        yield say(words.WHY_WAITED, waited=f"{report.wait_seconds:.1f}")


def _outcome(report: TurnReport, say: MessageCatalog) -> Iterator[str]:
    match report.state:
        case "queued" | "running":
            yield say(words.WHY_RUNNING)
        case "failed":
            yield say(words.WHY_FAILED)
        case "cancelled":
            yield say(words.WHY_STOPPED)
    if report.run_record is None and report.finished_at is not None:
        yield say(words.WHY_NOT_STORED)
    kinds = {
        "retry": words.WHY_RETRY,
        "regenerate": words.WHY_REGENERATE,
        "revise": words.WHY_EDITED,
        "decision": words.WHY_AFTER_DECISION,
    }
    if kind := kinds.get(report.kind):
        yield say(kind)
    if report.messages > 1:
        yield say(words.WHY_MERGED, count=report.messages)
    if report.attempt > 1:
        yield say(words.WHY_ATTEMPTS, count=report.attempt)


def _models(report: TurnReport, say: MessageCatalog) -> Iterator[str]:
    calls_by_model = dict[tuple[str, str, bool, bool], list[ModelCall]]()
    for call in report.calls:
        is_failure = call.error not in ("", CANCELLED)
        calls_by_model.setdefault((call.model, call.instead_of, is_failure, call.is_summary), []).append(call)
    for (model, other, has_failed, is_summary), calls in [*calls_by_model.items()][:MAX_MODELS]:
        seconds = sum(call.seconds for call in calls)
        values = {
            "model": _code(model, MAX_NAME),
            "other": _code(other, MAX_NAME),
            "took": say.format_elapsed(f"{seconds:.1f}") if seconds else "",
            "count": len(calls),
            "read": f"{sum(call.input for call in calls):,}",
            "written": f"{sum(call.output + call.thinking for call in calls):,}",
        }
        if has_failed:
            yield say(words.WHY_MODEL_FAILED, **values)
        elif is_summary:
            yield say(words.WHY_MODEL_SUMMARY, **values)
        else:
            yield say(words.WHY_FALLBACK_MODEL if other else words.WHY_MODEL, **values)
    cached = report.usage.get("cached", 0)
    cache_write = report.usage.get("cache_write", 0)
    if cached or cache_write:
        yield say(words.WHY_CACHE, read=f"{cached:,}", written=f"{cache_write:,}")
    if report.known_cost is not None:
        yield say(words.WHY_COST, cost=format_dollars(report.known_cost))
    if report.unpriced:
        yield say(words.WHY_UNPRICED, tokens=f"{report.unpriced:,}")
    if not calls_by_model:
        if report.model:
            yield say(words.STATUS_MODEL, model=_code(report.model, MAX_NAME))
        if report.usage:
            output = report.usage.get("output", 0) + report.usage.get("thinking", 0)
            yield say(words.WHY_TOKENS, read=f"{report.usage.get('input', 0):,}", written=f"{output:,}")


def _tools(record: RunRecord, say: MessageCatalog) -> Iterator[str]:
    for use in record.tool_calls[:MAX_TOOLS]:
        yield _tool(use, say)
    hidden_count = len(record.tool_calls) + record.omitted_tool_calls - MAX_TOOLS
    if hidden_count > 0:
        yield say(words.WHY_MORE_TOOLS, count=hidden_count)


def _tool(use: ToolCallRecord, say: MessageCatalog) -> str:
    sentences = {"failed": words.WHY_TOOL_FAILED, "waiting": words.WHY_TOOL_WAITS, "open": words.WHY_TOOL_RUNNING}
    duration = "" if use.seconds is None else say.format_elapsed(f"{use.seconds:.1f}")
    cut = "…" if use.cut_characters and len(use.arguments) <= MAX_ARGUMENTS else ""
    values = {
        "tool": _code(use.tool, MAX_NAME),
        "took": duration,
        "arguments": f"`{_code(use.arguments, MAX_ARGUMENTS)}{cut}`",
        "error": f"`{_code(use.error, MAX_ERROR)}`",
    }
    return say(sentences.get(use.outcome, words.WHY_TOOL), **values)


def _approval(approval: ApprovalRecord, say: MessageCatalog) -> str:
    tool = _code(approval.tool, MAX_NAME)
    if approval.verdict is None:
        return say(words.WHY_UNDECIDED, tool=tool)
    decision = decision_text(approval.verdict, approval.decider, approval.decided_at, say, format_utc)
    return f"`{tool}`: {_disable_mentions(decision)}"


def _inputs(report: TurnReport, record: RunRecord, say: MessageCatalog) -> Iterator[str]:
    if (history := record.history) is not None and history.messages:
        yield say(words.WHY_HISTORY, count=history.messages, tokens=f"{history.tokens:,}")
        if history.summarized_id:
            yield say(words.WHY_SUMMARY)
        if report.omitted_messages:
            cut = words.WHY_CUT_TURNS if history.limit == "turns" else words.WHY_CUT_TOKENS
            yield say(cut, count=f"{report.omitted_messages:,}", budget=f"{history.budget:,}", turns=history.turns)
    if record.context.messages:
        yield say(words.WHY_CONTEXT, count=record.context.messages, tokens=f"{record.context.tokens:,}")
    if record.context.omitted_messages:
        yield say(words.WHY_CONTEXT_CUT, count=record.context.omitted_messages)
    for file in record.files[:MAX_FILES]:
        name = _code(file.name, MAX_NAME)
        yield (
            say(words.WHY_FILE_SKIPPED, name=name, why=_disable_mentions(plain_line(file.omission_reason)))
            if file.omission_reason
            else say(words.WHY_FILE, name=name)
        )
    if record.sources:
        hidden = [f"+{len(record.sources) - MAX_SOURCES}"] if len(record.sources) > MAX_SOURCES else []
        links = [f"`{_code(url, MAX_ARGUMENTS)}`" for url in record.sources[:MAX_SOURCES]]
        yield say(words.SOURCES, links=" · ".join([*links, *hidden]))


def _time(report: TurnReport, record: RunRecord, say: MessageCatalog) -> str:
    duration = f"{report.duration_seconds if report.duration_seconds is not None else record.seconds:.1f}"
    if record.first_text_seconds is None:
        return say(words.WHY_TOTAL_TIME, all=duration)
    return say(words.WHY_TIME, first=f"{record.first_text_seconds:.1f}", all=duration)


def _code(text: str, max_characters: int = MAX_ARGUMENTS) -> str:
    """Return a text for use in backticks: nothing in it can end the code, mention anybody or be a link."""
    line = " ".join(text.replace("`", "'").split())
    return _disable_mentions(line if len(line) <= max_characters else f"{line[: max_characters - 1].rstrip()}…")


def _disable_mentions(text: str) -> str:
    """Put a zero-width space into mentions and `<...>` links, which both platforms parse even in code."""
    return text.replace("<", "<\u200b").replace("@", "@\u200b")
