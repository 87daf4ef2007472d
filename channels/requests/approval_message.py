"""Approval messages: the tool call, its arguments, the approvers and the decision."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types

from channels.base import Button, File
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_time
from channels.replies.buttons import approval_buttons
from core.messages.identity import AUTHOR, EVERYONE, INVISIBLE_CHARACTERS, OTHERS
from core.messages.inbox_message import storable_text
from core.observability.secret_redaction import redact_json_secrets, redact_secrets
from core.tools.adk_confirmations import Account
from core.tools.human_requests import Approval, HumanRequest, SignInRequest
from core.tools.shown_arguments import fit_arguments

#: The most characters of the tool's hint, and of the tool's name.
MAX_HINT, MAX_NAME = 300, 100

#: The file with the arguments that the message shows only in part.
ARGUMENTS_FILE = "arguments.json"

_DECISIONS = {
    "approved": words.APPROVED,
    "always": words.APPROVED_ALWAYS,
    "denied": words.DENIED,
    "expired": words.EXPIRED,
    "answered": words.ANSWERED,
    "connected": words.CONNECTED,
}

_APPROVER_SENTENCES = (words.AUTHOR_MUST_APPROVE, words.OTHERS_MUST_APPROVE, words.APPROVERS_MUST_APPROVE)
_ANSWERER_SENTENCES = (words.AUTHOR_MUST_ANSWER, words.OTHERS_MUST_ANSWER, words.DECIDERS_MUST_ANSWER)

#: Markup characters in the names of people.
_MARKUP = regex.compile(r"[\\`*_~|<>\[\]()#]")


def approval_text(approval: Approval, say: MessageCatalog, *, is_void: bool = False) -> str:
    """Return the Markdown of an approval message: the tool call, and the decision.

    While the approval is open, the text tells the kind of approvers (such as *anyone here*) and the time limit. Secrets
    in the arguments are masked, and long arguments are cut: see `list_argument_files`. Markup in them has no effect.
    """
    shown = approval.shown_arguments
    is_closed = is_void or approval.verdict is not None
    parts = [
        say(words.APPROVE_TOOL, tool=format_tool(approval.tool)),
        plain_line(redact_secrets(storable_text(approval.hint[: 4 * MAX_HINT])))[:MAX_HINT],
        _account_text(approval.account, say),
        _fence(shown.text),
        say(words.CHARACTERS_HIDDEN, count=f"{shown.missing:,}") if shown.missing else "",
        say(words.ARGUMENTS_IN_FILE, name=ARGUMENTS_FILE) if shown.missing and approval.is_readable else "",
        say(words.SECRETS_HIDDEN, count=f"{shown.hidden:,}") if shown.hidden else "",
        say(words.APPROVAL_VOID) if is_void else _state_text(approval, say),
        "" if approval.is_readable or is_closed else say(words.ARGUMENTS_NOT_ATTACHED, name=ARGUMENTS_FILE),
    ]
    return "\n\n".join(part for part in parts if part)


def format_tool(name: str) -> str:
    """Return a tool's name to put within backticks: on one line, without backticks."""
    return " ".join(INVISIBLE_CHARACTERS.sub(" ", storable_text(name)).replace("`", "").split())[:MAX_NAME]


def fence_arguments(arguments: Any) -> str:
    """Return a tool call's arguments as JSON in a code block, cut if they are long, known secrets masked."""
    return _fence(fit_arguments(redact_json_secrets(arguments))[0])


def _fence(json_text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, regex.findall("`+", json_text)), default=0))
    return f"{fence}json\n{json_text}\n{fence}"


def list_argument_files(approval: Approval) -> list[File]:
    """Return the file with all arguments of an approval, if its message cuts them; else nothing."""
    shown = approval.shown_arguments
    return [File(ARGUMENTS_FILE, shown.full_text.encode())] if shown.missing else []


def decision_buttons(approval: Approval, say: MessageCatalog, *, is_void: bool = False) -> Sequence[Button]:
    """Return the buttons of an approval; none if it is decided or void.

    *Retry* takes the place of *Approve* until the file with long arguments is attached.
    """
    if is_void or approval.verdict is not None:
        return ()
    may_approve = approval.permits("approved")
    may_always = approval.permits("always")
    return approval_buttons(approval.id, say, may_approve=may_approve, may_always=may_always)


def _account_text(account: Account | None, say: MessageCatalog) -> str:
    if account is None:
        return ""
    services = ", ".join(map(plain_line, account.services))
    return say(words.USES_ACCOUNT, name=plain_line(account.name) or say(words.UNKNOWN_USER), services=services)


def _state_text(approval: Approval, say: MessageCatalog) -> str:
    if approval.verdict is not None:
        return decision_text(approval.verdict, approval.decider, approval.decided_at, say)
    sentences = {EVERYONE: words.ANYONE_APPROVES, OTHERS: words.OTHERS_APPROVE, AUTHOR: words.AUTHOR_APPROVES}
    return decision_rule_text(approval, sentences, words.APPROVERS_APPROVE, say)


def decision_rule_text(request: HumanRequest, sentences: Mapping[str, str], others: str, say: MessageCatalog) -> str:
    """Return a translated sentence on the deciders and the time limit of a request.

    `sentences` are untranslated, with `{until}`, by the only rule of a request: `AUTHOR`, `OTHERS` or `EVERYONE`.
    `others` is for any other rules, such as named people or roles; it names nobody.
    """
    found = {sentences.get(rule, others) for rule in request.deciders}
    return say(found.pop() if len(found) == 1 else others, until=format_time(request.expires_at))


def refusal_text(request: HumanRequest, say: MessageCatalog) -> str:
    if isinstance(request, SignInRequest):
        return say(words.SIGN_IN_NOT_YOURS)
    is_approval = isinstance(request, Approval)
    author, others, deciders = _APPROVER_SENTENCES if is_approval else _ANSWERER_SENTENCES
    return decision_rule_text(request, {OTHERS: others, AUTHOR: author}, deciders, say)


def decision_text(
    verdict: str,
    decider: str,
    decided_at: float | None,
    say: MessageCatalog,
    format_time: Callable[[float], str] = format_time,
) -> str:
    """Return a sentence with the decision on a request, its time and the decider (*somebody* if empty)."""
    return say(
        _DECISIONS[verdict],
        name=plain_line(decider) or say(words.UNKNOWN_USER),
        when=format_time(decided_at or 0.0),
    )


def plain_line(text: str) -> str:
    """Return a text on one line, without invisible characters and those of Markdown markup."""
    line: str = _MARKUP.sub("", " ".join(INVISIBLE_CHARACTERS.sub(" ", text).split()))
    return line
