"""Form fields of an agent's question, as both platforms show them."""

from collections.abc import Sequence

from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from core.identity import INVISIBLE_CHARACTERS
from core.inbox_message import storable_text
from core.secret_redaction import redact_secrets
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
    """Return the text of a question without invisible characters and secrets.

    The text has at most `MAX_QUESTION` characters; it is empty if the question has none.
    """
    text = question.text.strip()[: 2 * MAX_QUESTION]  # longer than the result, so that a secret at its end is found
    return redact_secrets(INVISIBLE_CHARACTERS.sub(" ", storable_text(text))).strip()[:MAX_QUESTION].rstrip()


def option_label(field: FormField, position: int, say: MessageCatalog) -> str:
    """Return the label of an option of a form field, in the user's language.

    It is *Yes* or *No* for a boolean, and *None* for the option without a value.

    Args:
        position: the index of the option in `field.options`.
    """
    option = field.options[position]
    if option.value is None:
        return say(words.EMPTY_OPTION)
    return say(words.YES if option.value else words.NO) if field.kind == "boolean" else option.label


def get_initial_entry(field: FormField, entries: Entries) -> str | Sequence[str]:
    """Return the initial value of a form field: the user's draft, or the default.

    Args:
        entries: the values that the user entered earlier, by the name of the field.

    Returns:
        A text, or a list of texts for the kind `choices`; empty without draft and default. The text of an option is
        `OPTION_PREFIX` and its index.
    """
    return entries.get(field.name, to_entry(field, field.default) if field.has_default else "")


def preset_text(field: FormField, entries: Entries) -> str:
    """Return the initial value of a text field, truncated to `MAX_ENTRY` characters.

    Several values are on a line each. An option is shown by its label.

    Args:
        entries: the values that the user entered earlier, by the name of the field.
    """
    preset = get_initial_entry(field, entries)
    labels = {f"{OPTION_PREFIX}{i}": option.label for i, option in enumerate(field.options)}
    return "\n".join(labels.get(option, option) for option in ([preset] if isinstance(preset, str) else preset))[
        :MAX_ENTRY
    ]


def is_single_line(field: FormField) -> bool:
    """Return whether a text field needs only one line.

    True for a number, for one of several options, and for a text of at most `_MAX_LINE` characters by `max_length`.
    """
    return field.kind in ("integer", "number", "choice") or (field.max_length or MAX_ENTRY) <= _MAX_LINE


def text_field_notes(field: FormField, say: MessageCatalog) -> list[str]:
    """Return the hints to show with a text field, in the user's language.

    Fields of the kinds `list` and `choices` get the hint to enter one value per line. Those of the kinds `json`,
    `object` and `array` get the hint to enter JSON, except a `json` field without a name. A field with options gets a
    hint with the number of options. The list is empty for other fields.
    """
    notes = [say(_NOTES[field.kind])] if field.kind in _NOTES and (field.name or field.kind != "json") else []
    return [*notes, *([say(words.ONE_OF_OPTIONS, count=len(field.options))] if field.options else [])]
