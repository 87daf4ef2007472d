"""Forms of an agent's questions as Discord modals.

Discord: docs.discord.com/developers/components/reference. A modal has at most five fields; longer forms have pages.
"""

from collections.abc import Mapping
from typing import Any

import discord

from channels.discord.client.components import MAX_MENU_OPTIONS
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.requests.question_fields import (
    clean_question,
    get_initial_entry,
    is_single_line,
    option_label,
    preset_text,
    text_field_notes,
)
from core.tools.human_requests import Question
from core.tools.question_form import MAX_ENTRY, OPTION_PREFIX, Entries, FormField

#: Most fields on a page of a form.
FORM_PAGE_SIZE = 5

#: The prefix of the ids of modals, and of their fields.
MODAL_PREFIX, _FIELD_PREFIX = "answer:", "field-"

#: Discord: the most characters of a title, a label, a description, and an option's label.
_MAX_TITLE, _MAX_LABEL, _MAX_DESCRIPTION, _MAX_OPTION = 45, 45, 100, 100


def create_modal(question: Question, page: int, entries: Entries, say: MessageCatalog) -> discord.ui.Modal:
    """Return the modal with one page of a question's form, or its last page for a higher number.

    The modal is stopped (`View.stop`): the dispatcher, and not the modal, receives the submitted form. `entries` is the
    user's draft, by the name of the field.
    """
    fields = question.form.fields
    pages = -(-len(fields) // FORM_PAGE_SIZE)
    page = min(page, pages - 1)
    title = say(words.ANSWER) if pages == 1 else f"{say(words.ANSWER)} {page + 1}/{pages}"
    modal = discord.ui.Modal(title=title[:_MAX_TITLE], custom_id=f"{MODAL_PREFIX}{page}:{question.id}")
    for i in range(page * FORM_PAGE_SIZE, min((page + 1) * FORM_PAGE_SIZE, len(fields))):
        modal.add_item(_create_label(i, fields[i], question, entries, say))
    modal.stop()
    return modal


def parse_form(data: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Return the question's id, the page and the entries of a submitted modal: see `create_modal`.

    The entries are by the index of the field (as text). An entry is a text, or the list of the ids of chosen options;
    an empty text without input.
    """
    page, _, question_id = str(data["custom_id"]).removeprefix(MODAL_PREFIX).partition(":")
    entries = dict[str, Any]()
    for row in data.get("components") or ():
        for component in [row["component"]] if "component" in row else row.get("components") or ():
            position = str(component.get("custom_id")).removeprefix(_FIELD_PREFIX)
            entries[position] = component.get("value", component.get("values")) or ""
    return question_id, int(page), entries


def _create_label(
    position: int, field: FormField, question: Question, entries: Entries, say: MessageCatalog
) -> discord.ui.Label[Any]:
    label = field.label or " ".join(clean_question(question).split()) or say(words.YOUR_ANSWER)
    hints = [label if len(label) > _MAX_LABEL else "", field.description]
    id_ = f"{_FIELD_PREFIX}{position}"
    component: discord.ui.Item[Any]
    if field.options and len(field.options) <= MAX_MENU_OPTIONS:
        preset = get_initial_entry(field, entries)
        chosen = [preset] if isinstance(preset, str) else preset
        options = [
            discord.SelectOption(
                label=option_label(field, i, say)[:_MAX_OPTION],
                value=f"{OPTION_PREFIX}{i}",
                default=f"{OPTION_PREFIX}{i}" in chosen,
            )
            for i in range(len(field.options))
        ]
        max_values = len(options) if field.kind == "choices" else 1
        min_values = 1 if field.is_required else 0
        component = discord.ui.Select(
            custom_id=id_, options=options, min_values=min_values, max_values=max_values, required=field.is_required
        )
    else:
        component = discord.ui.TextInput(
            custom_id=id_,
            style=discord.TextStyle.short if is_single_line(field) else discord.TextStyle.paragraph,
            default=preset_text(field, entries) or None,
            required=field.is_required,
            max_length=MAX_ENTRY,
        )
        hints += text_field_notes(field, say)
    description = " ".join(filter(None, hints))[:_MAX_DESCRIPTION]
    return discord.ui.Label(text=label[:_MAX_LABEL], description=description or None, component=component)
