"""What is known of a turn, as operators are shown it."""

from bot import output as tables
from core.agents.run_record import Receipt, ToolUse
from core.conversations.turn_report import Account, Ruling
from core.usage.meter import ModelCall
from core.usage.prices import dollars


def show(account: Account) -> None:
    """Print all of it."""
    facts = {
        "turn": account.id,
        "state": f"{account.state}{f' ({account.cancel})' if account.cancel else ''}",
        "error": account.error,
        "kind": f"{account.kind}{f' of {account.parent}' if account.parent else ''}",
        "session": f"{account.session_id}, generation {account.generation}{' (started over since)' * account.is_reset}",
        "asked by": ", ".join(sorted(account.askers)),
        "messages": account.asked,
        "attempts": account.attempt,
        "worker": account.owner,
        "begun (UTC)": tables.short(account.created_at),
        "had waited": tables.span(account.waited),
        "took": tables.span(account.seconds),
        "model": account.model or "the default",
        "tokens": ", ".join(f"{name} {count:,}" for name, count in account.usage.items() if count),
        "cost": _cost(account),
        "answered again by": ", ".join(account.again),
        **_receipt(account),
    }
    tables.show(f"Turn {account.id}", ["", ""], [[name, fact] for name, fact in facts.items() if fact])
    if account.calls:
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
        tables.show("Models", columns, [_call(call) for call in account.calls])
    if account.receipt is not None and account.receipt.tools:
        columns = ["tool", "how it ended", "took", "arguments", "error"]
        tables.show("Tools", columns, [_tool(use) for use in account.receipt.tools])
    if rulings := [*account.led_by, *account.rulings]:
        tables.show("Decisions", ["tool", "decision", "by", "at"], [_ruling(ruling) for ruling in rulings])


def _receipt(account: Account) -> dict[str, object]:
    receipt = account.receipt
    if receipt is None:
        return {"receipt": "none is kept" if account.finished_at is not None else "it has not ended"}
    return {
        "first word": tables.span(receipt.first_word),
        "run": tables.span(receipt.seconds),
        "history": _history(account, receipt),
        "others' words": _others(receipt),
        "files": "; ".join(f"{file.name}{f': not read, {file.why}' if file.why else ''}" for file in receipt.files),
        "more tools": receipt.tools_hidden,
    }


def _history(account: Account, receipt: Receipt) -> str:
    if (history := receipt.history) is None:
        return ""
    bounds = {"tokens": "there is no room in the budget", "turns": f"only the newest {history.turns} turns are sent"}
    cut = f"; {account.left_out:,} older messages left out: {bounds[history.bound]}" if history.bound else ""
    cut += "; what came before stood in a summary" if history.covers else ""
    return f"{history.messages} messages, {history.tokens:,} of {history.budget:,} tokens{cut}"


def _cost(account: Account) -> str:
    told = [dollars(account.cost)] if account.cost or (account.calls and not account.unpriced) else []
    return "; ".join([*told, *([f"no price is known for {account.unpriced:,} tokens"] if account.unpriced else [])])


def _others(receipt: Receipt) -> str:
    others = receipt.others
    if not (others.messages or others.left_out):
        return ""
    return f"{others.messages} messages, {others.tokens:,} tokens; {others.left_out} left out"


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


def _tool(use: ToolUse) -> list[object]:
    ended = f"{use.ended}{' (earlier attempt)' if use.is_earlier else ''}"
    more = f" … {use.hidden} more characters" if use.hidden else ""
    return [use.tool, ended, tables.span(use.seconds), f"{use.arguments}{more}", use.error]


def _ruling(ruling: Ruling) -> list[object]:
    at = tables.short(ruling.decided_at) if ruling.decided_at else ""
    return [ruling.tool, ruling.verdict or "open", ruling.decider, at]
