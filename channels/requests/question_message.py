"""Messages with an agent's question: the text, the buttons or menu, the answer."""

import logging
from collections.abc import Sequence
from decimal import Decimal

from channels.base import Button
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_time
from channels.replies.buttons import create_button
from channels.requests.approval_message import (
    decision_rule_text,
    decision_text,
    fence_arguments,
    format_tool,
    plain_line,
)
from channels.requests.question_fields import clean_question, option_label
from core.messages.identity import AUTHOR, EVERYONE, INVISIBLE_CHARACTERS, OTHERS
from core.models.tool_calls import MAX_JSON_LEVELS
from core.observability.secret_redaction import redact_json_secrets, redact_secrets
from core.tools.human_requests import Question
from core.tools.question_form import EntryError, describe_answer

log = logging.getLogger(__name__)

#: The most options that are buttons; more are a menu.
MAX_OPTION_BUTTONS = 5

#: The most characters of a button's label, and of each field of a shown answer.
MAX_OPTION_LABEL, MAX_ANSWER = 75, 300

#: The most characters of a limit in a sentence on an entry, such as a pattern.
MAX_LIMIT = 100

#: The most characters of the options that the text lists because their labels are cut.
MAX_OPTION_LIST = 1200

#: The sentence on each fault of an entry; `words.ENTRY_NOT_FITTING` for others.
_FAULTS = {
    "required": words.ENTRY_REQUIRED,
    "integer": words.ENTRY_NOT_INTEGER,
    "number": words.ENTRY_NOT_NUMBER,
    "option": words.ENTRY_NOT_OPTION,
    "json": words.ENTRY_NOT_JSON,
    "json_depth": words.ENTRY_TOO_NESTED,
    "json_number": words.ENTRY_NOT_JSON_NUMBER,
    "form": words.ENTRY_NEEDS_FORM,
    "missing": words.ENTRY_MISSING_PARTS,
    "unchecked": words.ENTRY_UNCHECKED,
    "minimum": words.ENTRY_TOO_SMALL,
    "maximum": words.ENTRY_TOO_LARGE,
    "exclusiveMinimum": words.ENTRY_NOT_ABOVE,
    "exclusiveMaximum": words.ENTRY_NOT_BELOW,
    "multipleOf": words.ENTRY_NOT_MULTIPLE,
    "minLength": words.ENTRY_TOO_SHORT,
    "maxLength": words.ENTRY_TOO_LONG,
    "pattern": words.ENTRY_NOT_MATCHING,
    "format": words.ENTRY_NOT_FORMAT,
    "type": words.ENTRY_NOT_TYPE,
    "enum": words.ENTRY_NOT_OPTION,
    "const": words.ENTRY_NOT_OPTION,
    "minItems": words.ENTRY_TOO_FEW,
    "maxItems": words.ENTRY_TOO_MANY,
    "uniqueItems": words.ENTRY_NOT_UNIQUE,
    "minProperties": words.ENTRY_TOO_FEW_PARTS,
    "maxProperties": words.ENTRY_TOO_MANY_PARTS,
}


def question_text(question: Question, say: MessageCatalog, *, is_void: bool = False) -> str:
    """Return the Markdown of the message of an agent's question.

    All that the agent or a person wrote is in a block quote, so that it cannot be taken for Parley's own lines. All
    options are listed if a label is too long for a button. If the form has a problem, a warning is logged.
    """
    if question.form.problem:
        log.warning("the schema of question %s cannot be shown as a form: %s", question.id, question.form.problem)
    is_open = question.verdict is None and not is_void
    parts = [
        _describe(question, say),
        _quote(_list_long_options(question)) if is_open else "",
        _describe_problem(question, say) if is_open else "",
        _describe_privacy(question, say) if is_open else "",
        say(words.QUESTION_VOID) if is_void else _state_text(question, say),
    ]
    return "\n\n".join(part for part in parts if part)


def question_buttons(
    question: Question, say: MessageCatalog, max_options: int, *, page: int = 0, is_void: bool = False
) -> Sequence[Button]:
    """Return the buttons or the menu of a question; none if it is not open any more.

    A question with options has a button for each, or a menu if there are more than `MAX_OPTION_BUTTONS`. Any other
    question has a button that opens its form. A menu of more than `max_options` is split into pages, from 0, with
    buttons to turn them; beyond the last page, the last one is shown.
    """
    if is_void or question.verdict is not None:
        return ()
    choice = question.form.choice
    if choice is None:
        return [create_button("form", question.id, say, detail="0")]
    labels = [option_label(choice, i, say) for i in range(len(choice.options))]
    if _list_long_options(question):  # beginnings of long labels can be equal
        labels = [f"{i}. {label}" for i, label in enumerate(labels, 1)]
    options = [Button(f"option:{i}:{question.id}", label[:MAX_OPTION_LABEL]) for i, label in enumerate(labels)]
    if len(options) <= MAX_OPTION_BUTTONS:
        return options
    pages = [options[i : i + max_options] for i in range(0, len(options), max_options)]
    page = min(max(page, 0), len(pages) - 1)
    label = say(words.CHOOSE) if len(pages) == 1 else f"{say(words.CHOOSE)} ({page + 1}/{len(pages)})"
    menu = Button(f"menu:{question.id}", label, options=tuple(pages[page]))
    turns = [create_button("page", question.id, say, detail=str(page + 1))] if page + 1 < len(pages) else []
    back = [Button(f"page:{page - 1}:{question.id}", say(words.PREVIOUS_OPTIONS))] if page else []
    return [menu, *back, *turns]


def entry_error_text(error: EntryError, say: MessageCatalog) -> str:
    limit = MAX_JSON_LEVELS if error.fault == "json_depth" else error.limit
    shown = _quote_code(limit) if isinstance(limit, str) else "" if limit is None else _format_number(limit)
    sentence = say(_FAULTS.get(error.fault, words.ENTRY_NOT_FITTING), limit=shown)
    return f"{_quote_code(error.place)}: {sentence}" if error.place else sentence


def _quote_code(text: str) -> str:
    """Return the beginning of a text as Markdown code, so that a schema's text is no markup and mentions nobody."""
    line = " ".join(INVISIBLE_CHARACTERS.sub(" ", text.replace("`", "'")).split())
    return f"`{line[:MAX_LIMIT]}`"


def _format_number(number: float) -> str:
    """Return a number as text; a long one in scientific notation, also if it is too large for a float."""
    return str(number) if isinstance(number, int) and abs(number) < 10**15 else f"{Decimal(number):.6g}"


def _describe(question: Question, say: MessageCatalog) -> str:
    if question.takes_messages and (text := clean_question(question)):
        return f"❓ {say(words.QUESTION_HEADING)}\n\n{_quote(text)}"
    if question.takes_messages:
        return f"❓ {say(words.CHOOSE_ONE if question.form.choice else words.NEEDS_ANSWER)}"
    return f"❓ {say(words.TOOL_WAITS, tool=format_tool(question.tool))}\n\n{fence_arguments(question.arguments)}"


def _quote(text: str) -> str:
    """Return a text as a Markdown block quote: each line is in it, and with it ends all that the text leaves open."""
    return "\n".join(f"> {line}" for line in text.split("\n")) if text else ""


def _describe_problem(question: Question, say: MessageCatalog) -> str:
    if not question.form.problem:
        return ""
    return say(words.FORM_AS_JSON if question.form.fields[0].kind == "object" else words.FORM_PROBLEM)


def _describe_privacy(question: Question, say: MessageCatalog) -> str:
    may_be_message = question.takes_messages and question.form.choice is None
    return say(words.FORM_IS_PRIVATE) if may_be_message and question.has_secret_fields else ""


def _list_long_options(question: Question) -> str:
    choice = question.form.choice
    if choice is None or all(len(option.label) <= MAX_OPTION_LABEL for option in choice.options):
        return ""
    text = ""
    for i, option in enumerate(choice.options, 1):
        text = f"{text}\n{i}. {plain_line(option.label)}".lstrip()
        if len(text) > MAX_OPTION_LIST:
            return f"{text[:MAX_OPTION_LIST].rstrip()}…"
    return text


def _state_text(question: Question, say: MessageCatalog) -> str:
    match question.verdict:
        case None:
            rules = {EVERYONE: words.ANYONE_ANSWERS, OTHERS: words.OTHERS_ANSWER, AUTHOR: words.AUTHOR_ANSWERS}
            return decision_rule_text(question, rules, words.DECIDERS_ANSWER, say)
        case "expired":
            return say(words.QUESTION_EXPIRED)
        case verdict if question.is_answered_by_message:
            return say(
                words.ANSWERED_BY_MESSAGE,
                name=plain_line(question.decider) or say(words.UNKNOWN_USER),
                when=format_time(question.decided_at),
            )
        case verdict:
            lines = []
            for label, value in describe_answer(question.form, redact_json_secrets(question.masked_answer)):
                text = plain_line(redact_secrets(value[: 2 * MAX_ANSWER]))
                text = text if len(text) <= MAX_ANSWER else f"{text[:MAX_ANSWER].rstrip()}…"
                lines.append(f"- {plain_line(label)}: **{text}**" if label else f"**{text}**")
            quoted = _quote("\n".join(lines))
            return f"{decision_text(verdict, question.decider, question.decided_at, say)}\n{quoted}"
