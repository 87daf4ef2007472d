"""Forms and menus that a bot shows to a user; the same for every platform."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

#: A line lists this many options of a menu or field.
MAX_LISTED_OPTIONS = 10

#: Entries of a form by the id of their field.
FormValues = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class ClientOption:
    value: str
    label: str


class InputKind(Enum):
    """Kinds of entries in a field without options; the values are HTML's input types."""

    TEXT = "text"
    DATE = "date"
    TIME = "time"
    DATE_TIME = "datetime-local"


@dataclass(frozen=True, slots=True)
class ClientField:
    """Input field of a form, or menu of a message.

    Attributes:
        id: the platform's id of the input or menu.
        label: the name of the field; of a menu, the text before a selection.
        hint: the placeholder in the empty field.
        description: the explanation of the field.
        values: the entry so far: at most one text, or the values of the selected options.
        options: the options to select from; empty for a text.
        takes_several: whether several options can be selected.
        is_multiline: whether the text can have several lines.
        error: the reason that the last entry was refused; "" for none.
        kind: the kind of an entry without options.
    """

    id: str
    label: str
    hint: str = ""
    description: str = ""
    values: tuple[str, ...] = ()
    options: tuple[ClientOption, ...] = ()
    takes_several: bool = False
    is_multiline: bool = False
    is_required: bool = True
    error: str = ""
    kind: InputKind = InputKind.TEXT


@dataclass(frozen=True, slots=True)
class ClientForm:
    """Form that is open for one user (a modal).

    Attributes:
        text: the text above the fields.
        submit_label: the label of the button that submits the form; empty if the form cannot be submitted.
        close_label: the label of the button that closes the form without submitting.
    """

    id: str
    title: str
    text: str
    fields: tuple[ClientField, ...]
    submit_label: str
    close_label: str


def parse_form_line(form: ClientForm, line: str) -> dict[str, list[str]]:
    """Parse a typed `LABEL: TEXT; LABEL: TEXT` to entries of a form by field id.

    Text before any label is for the first field. A label must be complete; case does not matter. Other text before
    a colon is part of the entry. Options are named by the beginning of their label, several ones with a comma between
    them.

    Returns:
        The values of the typed fields only (see `parse_field_values`); empty for an empty line.

    Raises:
        ValueError: a field has no such option, or a form without fields gets a text.
    """
    if not form.fields:
        if line:
            raise ValueError("This form has no fields.")
        return {}
    fields = {field.label.casefold(): field for field in form.fields}
    names = "|".join(re.escape(field.label) for field in form.fields)
    first, *rest = re.split(rf"(?i)(?:^|;)\s*({names})\s*:", line)
    texts = dict(zip(rest[::2], rest[1::2], strict=True))
    if first.strip():
        texts = {form.fields[0].label: first} | texts
    parsed = {}
    for label, text in texts.items():
        field = fields[label.casefold()]
        parsed[field.id] = parse_field_values(field, text.strip())
    return parsed


def parse_field_values(field: ClientField, text: str) -> list[str]:
    """Return the values of a typed entry of a field, empty for an empty text.

    The value is the text itself or, in a field with options, that of the option which `find_option` finds for it. If
    such a field `takes_several`, the text is split at commas, and each part is the text for one option.

    Raises:
        ValueError: the field has no such option; also for a blank part.
    """
    if not field.options or not text:
        return [text] if text else []
    names = text.split(",") if field.takes_several else [text]
    return [find_option(field.label, field.options, name.strip()).value for name in names]


def find_option(label: str, options: Sequence[ClientOption], name: str) -> ClientOption:
    """Return the option with the label `name`, else the first whose label begins so.

    Case does not matter.

    Args:
        label: the label of the menu or field, for the error.

    Raises:
        ValueError: there is no such option.
    """
    folded = name.casefold()
    exact = (option for option in options if option.label.casefold() == folded)
    matches = (option for option in options if folded and option.label.casefold().startswith(folded))
    found = next(exact, None) or next(matches, None)
    if found is None:
        raise ValueError(f"{label} has no option {name!r}. Options: {format_options(options)}.")
    return found


def format_options(options: Sequence[ClientOption]) -> str:
    """Return the labels of the first options, such as `Red, Blue, and 3 more`.

    It lists at most `MAX_LISTED_OPTIONS` labels.
    """
    labels = ", ".join(option.label for option in options[:MAX_LISTED_OPTIONS])
    hidden_count = len(options) - MAX_LISTED_OPTIONS
    return f"{labels}, and {hidden_count} more" if hidden_count > 0 else labels


def format_menu(menu: ClientField) -> str:
    return f"[ {menu.label} ▾ {format_options(menu.options)}".rstrip() + " ]"


def format_form(form: ClientForm) -> str:
    """Return a form as text: its title, text and fields, and the `/submit` command.

    The command is left out if the form cannot be submitted.
    """
    command = "; ".join(f"{field.label}: …" for field in form.fields)
    hint = f"Fill it in: /submit {command}" if form.submit_label else ""
    return "\n".join(filter(None, [form.title, form.text, *map(_format_field, form.fields), hint]))


def _format_field(field: ClientField) -> str:
    labels = {option.value: option.label for option in field.options}
    about = [
        "" if field.is_required else "optional",
        field.description,
        f"options: {format_options(field.options)}" if field.options else "",
    ]
    notes = "; ".join(filter(None, about))
    entry = ", ".join(labels.get(value, value) for value in field.values)
    error = f" ⚠ {field.error}" if field.error else ""
    return f"• {field.label}{f' ({notes})' if notes else ''}{f' = {entry}' if entry else ''}{error}"
