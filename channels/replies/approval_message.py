"""Approval messages: the tool call, its arguments, the approvers and the decision.

The arguments appear exactly as the tool gets them. Only known secrets are hidden. The model chooses the names and the
form of arguments: nothing is hidden because it looks like a secret.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types

from channels.base import Button
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.replies.buttons import approval_buttons
from core.identity import AUTHOR, EVERYONE, OTHERS
from core.inbox_message import INVISIBLE_CHARACTERS, storable_text
from core.secret_redaction import redact_json_secrets, redact_secrets, replace_known_secrets
from core.tools.adk_confirmations import ArgumentPath
from core.tools.human_requests import Approval, HumanRequest

#: The most characters of a tool call's arguments, of the tool's hint, and of the tool's name.
MAX_ARGUMENTS, MAX_HINT, MAX_NAME = 1200, 300, 100

#: The most characters of each text in arguments that are too long together: the first limit that fits.
_TEXT_LIMITS = (300, 100, 30)

_DECISIONS = {
    "approved": words.APPROVED,
    "always": words.APPROVED_ALWAYS,
    "denied": words.DENIED,
    "expired": words.EXPIRED,
    "answered": words.ANSWERED,
}

#: Markup characters in the names of people.
_MARKUP = regex.compile(r"[\\`*_~|<>\[\]()#]")


def approval_text(approval: Approval, say: MessageCatalog, *, is_void: bool = False) -> str:
    """Return the Markdown of an approval message: the tool call, and the decision.

    While the approval is open, the text tells the kind of approvers (such as *anyone here*) and the time limit. Secrets
    in the arguments are masked, and the JSON is truncated to `MAX_ARGUMENTS` characters. Markup in it has no effect.

    Args:
        is_void: whether nobody can decide the open approval any more; the text then says so.
    """
    arguments, hidden = _mask_secrets(approval)
    json_text, missing = _fit_arguments(arguments)
    parts = [
        say(words.APPROVE_TOOL, tool=format_tool(approval.tool)),
        plain_line(redact_secrets(storable_text(approval.hint)))[:MAX_HINT],
        _fence(json_text),
        say(words.CHARACTERS_HIDDEN, count=f"{missing:,}") if missing > 0 else "",
        say(words.SECRETS_HIDDEN, count=f"{hidden:,}") if hidden else "",
        say(words.APPROVAL_VOID) if is_void else _state_text(approval, say),
    ]
    return "\n\n".join(part for part in parts if part)


def format_tool(name: str) -> str:
    """Return a tool's name to put within backticks: on one line, without backticks.

    It has at most `MAX_NAME` characters.
    """
    return " ".join(INVISIBLE_CHARACTERS.sub(" ", storable_text(name)).replace("`", "").split())[:MAX_NAME]


def fence_arguments(arguments: Any) -> str:
    """Return a tool call's arguments as JSON in a code block, known secrets masked.

    The JSON has at most `MAX_ARGUMENTS` characters: first long texts in it are truncated, and at last the JSON itself.
    """
    return _fence(_fit_arguments(redact_json_secrets(arguments))[0])


def _fence(json_text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, regex.findall("`+", json_text)), default=0))
    return f"{fence}json\n{json_text}\n{fence}"


def decision_buttons(approval: Approval, say: MessageCatalog, *, is_void: bool = False) -> Sequence[Button]:
    """Return the buttons of an approval; none if it is decided or void.

    *Always allow* is among them only if the tool permits it and the message shows all arguments in full.

    Args:
        is_void: whether nobody can decide the open approval any more.
    """
    if is_void or approval.verdict is not None:
        return ()
    arguments, hidden = _mask_secrets(approval)
    is_whole = not hidden and not _fit_arguments(arguments)[1]
    return approval_buttons(approval.id, say, may_always=approval.may_allow_always and is_whole)


def _mask_secrets(approval: Approval) -> tuple[Any, int]:
    """Return the arguments of an approval with a note in place of each secret.

    The note tells the length of the secret. Secrets are the arguments of `Approval.secret_paths`, and known secrets
    (such as tokens of the settings) in any text.

    Returns:
        The masked arguments; the number of masked secrets.
    """
    hidden = 0

    def mask(length: int) -> str:
        nonlocal hidden
        hidden += 1
        return f"[hidden: {length:,} characters]"

    def hide(value: Any, path: ArgumentPath) -> Any:
        if path in approval.secret_paths and value is not None:
            return mask(len(value if isinstance(value, str) else json.dumps(value)))
        match value:
            case str():
                return replace_known_secrets(value, mask)
            case dict():
                masked = dict[str, Any]()
                for name, item in value.items():
                    key = replace_known_secrets(name, mask)
                    while key in masked:  # two names that differ only in a secret
                        key += "*"
                    masked[key] = hide(item, (*path, name))
                return masked
            case list():
                return [hide(item, (*path, i)) for i, item in enumerate(value)]
            case _:
                return value

    return hide(approval.arguments, ()), hidden


def _fit_arguments(arguments: Any) -> tuple[str, int]:
    """Return arguments as JSON of at most `MAX_ARGUMENTS` characters.

    A JSON that is too long with indentation is not indented. If it is still too long, each long text in it is
    truncated, and at last the whole JSON.

    Returns:
        The JSON; the number of characters that are left out.
    """
    whole = _to_json(arguments)
    for value in (arguments, *(_truncate_texts(arguments, limit) for limit in _TEXT_LIMITS)):
        compact = _to_json(value)
        missing = 0 if value is arguments else max(len(whole) - len(compact), 1)
        for text in (_to_json(value, indent=2), compact):
            if len(text) <= MAX_ARGUMENTS:
                return text, missing
    return compact[:MAX_ARGUMENTS], len(whole) - MAX_ARGUMENTS


def _to_json(arguments: Any, *, indent: int | None = None) -> str:
    """Return arguments as JSON, with JSON escapes for invisible characters.

    Args:
        indent: the spaces per level; None for JSON on one line.
    """
    text = storable_text(json.dumps(arguments, ensure_ascii=False, indent=indent))
    escaped: str = INVISIBLE_CHARACTERS.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return escaped


def _truncate_texts(value: Any, max_length: int) -> Any:
    match value:
        case str() if len(value) > max_length:
            return f"{value[:max_length]}…"
        case dict():
            return {name: _truncate_texts(item, max_length) for name, item in value.items()}
        case list():
            return [_truncate_texts(item, max_length) for item in value]
        case _:
            return value


def _state_text(approval: Approval, say: MessageCatalog) -> str:
    if approval.verdict is not None:
        return decision_text(approval.verdict, approval.decider, approval.decided_at, say)
    sentences = {EVERYONE: words.ANYONE_APPROVES, OTHERS: words.OTHERS_APPROVE, AUTHOR: words.AUTHOR_APPROVES}
    return decision_rule_text(approval, sentences, words.APPROVERS_APPROVE, say)


def decision_rule_text(request: HumanRequest, sentences: Mapping[str, str], others: str, say: MessageCatalog) -> str:
    """Return a translated sentence on the deciders and the time limit of a request.

    Args:
        sentences: the untranslated sentences for requests whose only rule is `AUTHOR`, `OTHERS` or `EVERYONE`, by rule.
            In each sentence, `{until}` is the place of the time limit.
        others: such a sentence for any other rules, such as named people or roles; it names nobody.
    """
    found = {sentences.get(rule, others) for rule in request.deciders}
    return say(found.pop() if len(found) == 1 else others, until=format_utc_minute(request.expires_at))


def decision_text(verdict: str, decider: str, decided_at: float | None, say: MessageCatalog) -> str:
    """Return a sentence with the decision on a request, its time and the decider.

    Args:
        verdict: `approved`, `always`, `denied`, `expired` or `answered`.
        decider: the name of the person; if it is empty, the sentence says *somebody*.
        decided_at: seconds since the epoch; None counts as 0.
    """
    return say(
        _DECISIONS[verdict],
        name=plain_line(decider) or say(words.UNKNOWN_USER),
        when=format_utc_minute(decided_at or 0.0),
    )


def format_utc_minute(at: float) -> str:
    """Return a time (seconds since the epoch) as `YYYY-MM-DD HH:MM` in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def plain_line(text: str) -> str:
    """Return a text on one line, without the characters of Markdown markup.

    Each run of spaces, line breaks and invisible characters becomes one space, or nothing at the ends. Then
    backslashes, backticks and the characters `*_~|<>[]()#` are deleted.
    """
    line: str = _MARKUP.sub("", " ".join(INVISIBLE_CHARACTERS.sub(" ", text).split()))
    return line
