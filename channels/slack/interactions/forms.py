"""Forms of an agent's questions as Slack modals.

Slack: docs.slack.dev/reference/views/modal-views. A modal has at most 100 blocks, so that each form fits into one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

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
from channels.slack.client.blocks import LABEL_SIZE, MAX_MENU_OPTIONS
from channels.slack.interactions.responses import ResponseTarget
from core.tools.human_requests import Question
from core.tools.question_form import MAX_ENTRY, OPTION_PREFIX, Entries, FormField

#: The ids of the buttons that open a form: see `create_button`.
FORM_BUTTON = re.compile("^form:")

#: The callback id of the modal, and the prefix of the ids of its inputs and their blocks.
ANSWER_MODAL, FIELD_PREFIX = "answer", "field-"

#: Slack: the most characters of a hint, and of a placeholder.
_MAX_HINT, _MAX_PLACEHOLDER = 2000, 150

#: The most bytes of a view up to the end of a menu; beyond that, menus become text fields. Slack: at most 250 kB.
_MAX_MENUS_BYTES = 150_000


def answer_modal(question: Question, entries: Entries, target: ResponseTarget, say: MessageCatalog) -> dict[str, Any]:
    """Return the modal with a question's form; `entries` is the user's draft, by the name of the field."""
    metadata = {
        "question": question.id,
        "channel": target.channel,
        "root": target.thread_ts,
        "ts": "",
        "url": target.response_url,
    }
    text = clean_question(question)
    section = [{"type": "section", "text": _plain_text(text)}] if text else []
    return {
        "type": "modal",
        "callback_id": ANSWER_MODAL,
        "private_metadata": json.dumps(metadata),
        "title": _plain_text(say(words.ANSWER)),
        "submit": _plain_text(say(words.SUBMIT)),
        "close": _plain_text(say(words.CANCEL)),
        "blocks": [*section, *_input_blocks(question, entries, say)],
    }


def _input_blocks(question: Question, entries: Entries, say: MessageCatalog) -> Iterator[dict[str, Any]]:
    size = 0
    for position, field in enumerate(question.form.fields):
        has_menu = 0 < len(field.options) <= MAX_MENU_OPTIONS
        block = _input_block(position, field, entries, say, has_menu=has_menu)
        if has_menu and size + len(json.dumps(block)) > _MAX_MENUS_BYTES:
            block = _input_block(position, field, entries, say, has_menu=False)
        size += len(json.dumps(block))
        yield block


def parse_form(view: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the question's id and the entries of a submitted modal: see `answer_modal`.

    The entries are by the index of the field (as text). An entry is a text, or the id of a menu's chosen option; empty
    for none. For a menu with several choices, it is the list of the chosen ids.
    """
    entries = dict[str, Any]()
    for block_id, elements in view["state"]["values"].items():
        element = elements.get(block_id)
        if not block_id.startswith(FIELD_PREFIX) or element is None:
            continue
        match element.get("type"):
            case "static_select":
                entered: Any = (element.get("selected_option") or {}).get("value") or ""
            case "multi_static_select":
                entered = [option["value"] for option in element.get("selected_options") or ()]
            case _:
                entered = element.get("value") or ""
        entries[block_id.removeprefix(FIELD_PREFIX)] = entered
    return str(json.loads(view["private_metadata"])["question"]), entries


def _input_block(
    position: int, field: FormField, entries: Entries, say: MessageCatalog, *, has_menu: bool
) -> dict[str, Any]:
    label = field.label or say(words.YOUR_ANSWER)
    hints = [field.description]
    if has_menu:
        element = _select(field, entries, say)
    else:
        element = {"type": "plain_text_input", "multiline": not is_single_line(field), "max_length": MAX_ENTRY}
        if text := preset_text(field, entries):
            element["initial_value"] = text
        hints += text_field_notes(field, say)
    block = {
        "type": "input",
        "block_id": f"{FIELD_PREFIX}{position}",
        "label": _plain_text(label[:_MAX_HINT]),
        "optional": not field.is_required,
        "element": {**element, "action_id": f"{FIELD_PREFIX}{position}"},
    }
    if hint := " ".join(filter(None, hints)):
        block["hint"] = _plain_text(hint[:_MAX_HINT])
    return block


def _select(field: FormField, entries: Entries, say: MessageCatalog) -> dict[str, Any]:
    preset = get_initial_entry(field, entries)
    options = [
        {"text": _plain_text(option_label(field, i, say)[:LABEL_SIZE]), "value": f"{OPTION_PREFIX}{i}"}
        for i in range(len(field.options))
    ]
    chosen = [option for option in options if option["value"] in ([preset] if isinstance(preset, str) else preset)]
    is_multiple = field.kind == "choices"
    element: dict[str, Any] = {
        "type": "multi_static_select" if is_multiple else "static_select",
        "options": options,
        "placeholder": _plain_text(say(words.CHOOSE)[:_MAX_PLACEHOLDER]),
    }
    if chosen and is_multiple:
        element["initial_options"] = chosen
    elif chosen:
        element["initial_option"] = chosen[0]
    return element


def _plain_text(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}
