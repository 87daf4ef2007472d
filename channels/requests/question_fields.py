"""Form fields of an agent's question, as both platforms show them."""

from collections.abc import Sequence

from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from core.messages.identity import INVISIBLE_CHARACTERS
from core.messages.inbox_message import storable_text
from core.observability.secret_redaction import redact_secrets
from core.tools.human_requests import Question
from core.tools.question_form import MAX_ENTRY, OPTION_PREFIX, Entries, FormField, to_entry

#: The most characters of the text of a question.
MAX_QUESTION = 2000

#: The most characters of a text for which a field has one line.
_MAX_LINE = 150

#: Notes on how the text of a field becomes its value, by the kind of the field.
_NOTES = {
    "list": words.ONE_PER_LINE,
    "choices": words.ONE_PER_LINE,
    "json": words.AS_JSON,
    "object": words.AS_JSON,
    "array": words.AS_JSON,
}


def clean_question(question: Question) -> str:
    """Return at most `MAX_QUESTION` characters of a question's text, without invisible characters and secrets."""
    text = question.text.strip()[: 2 * MAX_QUESTION]  # longer than the result, so that a secret at its end is found
    return redact_secrets(INVISIBLE_CHARACTERS.sub(" ", storable_text(text))).strip()[:MAX_QUESTION].rstrip()


def option_label(field: FormField, position: int, say: MessageCatalog) -> str:
    """Return the label of an option: *Yes* or *No* for a boolean, and *None* for the option without a value."""
    option = field.options[position]
    if option.value is None:
        return say(words.EMPTY_OPTION)
    return say(words.YES if option.value else words.NO) if field.kind == "boolean" else option.label


def get_initial_entry(field: FormField, entries: Entries) -> str | Sequence[str]:
    """Return the initial value of a form field: the user's draft in `entries`, or the default; else empty.

    It is a list of texts for the kind `choices`. The text of an option is `OPTION_PREFIX` and its index.
    """
    return entries.get(field.name, to_entry(field, field.default) if field.has_default else "")


def preset_text(field: FormField, entries: Entries) -> str:
    """Return the initial value of a text field, at most `MAX_ENTRY` characters; several values are on a line each."""
    preset = get_initial_entry(field, entries)
    labels = {f"{OPTION_PREFIX}{i}": option.label for i, option in enumerate(field.options)}
    return "\n".join(labels.get(option, option) for option in ([preset] if isinstance(preset, str) else preset))[
        :MAX_ENTRY
    ]


def is_single_line(field: FormField) -> bool:
    return field.kind in ("integer", "number", "choice") or (field.max_length or MAX_ENTRY) <= _MAX_LINE


def text_field_notes(field: FormField, say: MessageCatalog) -> list[str]:
    notes = [say(_NOTES[field.kind])] if field.kind in _NOTES and (field.name or field.kind != "json") else []
    return [*notes, *([say(words.ONE_OF_OPTIONS, count=len(field.options))] if field.options else [])]
