"""Checks of Block Kit: blocks, elements and views, with their limits.

Slack: docs.slack.dev/reference/block-kit and docs.slack.dev/reference/views. Slack refuses unknown fields: "invalid
additional property: disabled" (slackapi/bolt-js #1891). Blocks in `UNCHECKED_BLOCKS` are newer than their published
limits, so only their type is checked.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sandbox.slack.api.requests import SlackError
from sandbox.slack.api.shapes import Check, anything, boolean, integer, items, shape, string, variants

MAX_BLOCKS, MAX_VIEW_BLOCKS = 50, 100
#: The sum of all `markdown` blocks of a message.
MAX_MARKDOWN_BLOCK_CHARS = 12_000
#: All blocks of a message as JSON; `msg_blocks_too_long` is undocumented, but reported.
MAX_BLOCKS_JSON_CHARS = 13_200
MAX_VIEW_BYTES = 250_000

_TYPE: dict[str, Check] = {"type": string()}
_ID = string(255)
_IDS = items(string())
_URL = string(3_000)
_TEXT_FIELDS = {"plain_text": {"emoji": boolean}, "mrkdwn": {"verbatim": boolean}}


def _text(max_chars: int, *kinds: str) -> Check:
    """Return a check for a text object of these kinds, by default `plain_text`."""
    required = _TYPE | {"text": string(max_chars, min_chars=1)}
    return variants({kind: shape(required, _TEXT_FIELDS[kind]) for kind in kinds or ("plain_text",)})


def _any_text(max_chars: int) -> Check:
    return _text(max_chars, "plain_text", "mrkdwn")


_CONFIRM = shape(
    {"title": _text(100), "text": _any_text(300), "confirm": _text(30), "deny": _text(30)},
    {"style": string(choices=("primary", "danger"))},
)
_FILTER = shape(
    {},
    {
        "include": items(string(choices=("im", "mpim", "private", "public")), 1),
        "exclude_external_shared_channels": boolean,
        "exclude_bot_users": boolean,
    },
)
_DISPATCH = shape({"trigger_actions_on": items(string(choices=("on_enter_pressed", "on_character_entered")), 1)})
_SLACK_FILE = shape({}, {"id": string(), "url": string()}, one_of=("id", "url"))
_STYLE = string(choices=("primary", "danger"))
_LABEL = string(75)


def _option(text: Check) -> Check:
    return shape({"text": text, "value": string(150)}, {"description": _any_text(75), "url": _URL})


_OPTION, _MARKDOWN_OPTION = _option(_text(75)), _option(_any_text(75))
_OPTIONS, _FEW_OPTIONS = items(_OPTION, 1, 100), items(_MARKDOWN_OPTION, 1, 10)
_OPTION_LISTS = {
    "options": _OPTIONS,
    "option_groups": items(shape({"label": _text(75), "options": _OPTIONS}), 1, 100),
}


def _element(required: Mapping[str, Check], optional: Mapping[str, Check], *, one_of: Collection[str] = ()) -> Check:
    """Return a check for an interactive element."""
    return shape({**_TYPE, **required}, {"action_id": _ID, **optional}, one_of=one_of)


_CONFIRMED = {"confirm": _CONFIRM}
_FOCUSED = {"focus_on_load": boolean}
_MENU = {"placeholder": _text(150), **_CONFIRMED, **_FOCUSED}
_LIST_MENU = {**_MENU, "max_selected_items": integer(1)}
_TYPED = {"placeholder": _text(150), **_FOCUSED, "dispatch_action_config": _DISPATCH}
_CONVERSATIONS = {"default_to_current_conversation": boolean, "filter": _FILTER}
_BUTTON = {"style": _STYLE, "accessibility_label": _LABEL, **_CONFIRMED}
_FEEDBACK = shape({"text": _text(75), "value": string(2_000)}, {"accessibility_label": _LABEL})

_RICH_STYLE = shape(
    {},
    dict.fromkeys(
        ("bold", "italic", "strike", "code", "underline", "highlight", "client_highlight", "unlink"), boolean
    ),
)


def _rich(required: Mapping[str, Check], **optional: Check) -> Check:
    return shape({**_TYPE, **required}, {"style": _RICH_STYLE, **optional})


_RICH_ITEMS = items(
    variants(
        {
            "text": _rich({"text": string(min_chars=1)}),
            "link": _rich({"url": string(min_chars=1)}, text=string(), unsafe=boolean),
            "user": _rich({"user_id": string()}),
            "channel": _rich({"channel_id": string()}),
            "usergroup": _rich({"usergroup_id": string()}),
            "team": _rich({"team_id": string()}),
            "broadcast": _rich({"range": string(choices=("here", "channel", "everyone"))}),
            "emoji": _rich({"name": string()}, unicode=string(), url=string(), skin_tone=integer(1, 6)),
            "date": _rich({"timestamp": integer(), "format": string()}, url=string(), fallback=string()),
            "color": _rich({"value": string()}),
        }
    )
)
_BORDER = {"border": integer(0, 1)}
_SECTION = shape(_TYPE | {"elements": _RICH_ITEMS})
_RICH_TEXT = shape(
    _TYPE
    | {
        "elements": items(
            variants(
                {
                    "rich_text_section": _SECTION,
                    "rich_text_preformatted": shape(
                        _TYPE | {"elements": _RICH_ITEMS}, {**_BORDER, "language": string()}
                    ),
                    "rich_text_quote": shape(_TYPE | {"elements": _RICH_ITEMS}, _BORDER),
                    "rich_text_list": shape(
                        _TYPE
                        | {
                            "elements": items(variants({"rich_text_section": _SECTION})),
                            "style": string(choices=("bullet", "ordered")),
                        },
                        {**_BORDER, "indent": integer(0, 8), "offset": integer(0)},
                    ),
                }
            )
        )
    },
    {"block_id": _ID},
)

_IMAGE: tuple[dict[str, Check], dict[str, Check]] = (
    {"alt_text": string(2_000, min_chars=1)},
    {"image_url": _URL, "slack_file": _SLACK_FILE},
)

_MENUS: dict[str, Check] = {
    "static_select": _element({}, {**_MENU, **_OPTION_LISTS, "initial_option": _OPTION}, one_of=tuple(_OPTION_LISTS)),
    "multi_static_select": _element(
        {}, {**_LIST_MENU, **_OPTION_LISTS, "initial_options": _OPTIONS}, one_of=tuple(_OPTION_LISTS)
    ),
    "external_select": _element({}, {**_MENU, "min_query_length": integer(0), "initial_option": _OPTION}),
    "multi_external_select": _element({}, {**_LIST_MENU, "min_query_length": integer(0), "initial_options": _OPTIONS}),
    "users_select": _element({}, {**_MENU, "initial_user": string()}),
    "multi_users_select": _element({}, {**_LIST_MENU, "initial_users": _IDS}),
    "conversations_select": _element(
        {}, {**_MENU, **_CONVERSATIONS, "initial_conversation": string(), "response_url_enabled": boolean}
    ),
    "multi_conversations_select": _element({}, {**_LIST_MENU, **_CONVERSATIONS, "initial_conversations": _IDS}),
    "channels_select": _element({}, {**_MENU, "initial_channel": string(), "response_url_enabled": boolean}),
    "multi_channels_select": _element({}, {**_LIST_MENU, "initial_channels": _IDS}),
    "radio_buttons": _element({"options": _FEW_OPTIONS}, {**_CONFIRMED, **_FOCUSED, "initial_option": anything}),
    "checkboxes": _element({"options": _FEW_OPTIONS}, {**_CONFIRMED, **_FOCUSED, "initial_options": _FEW_OPTIONS}),
    "datepicker": _element({}, {**_MENU, "initial_date": string(10, min_chars=10)}),
    "timepicker": _element({}, {**_MENU, "initial_time": string(5, min_chars=5), "timezone": string()}),
    "datetimepicker": _element({}, {**_CONFIRMED, **_FOCUSED, "initial_date_time": integer(10**9, 10**10 - 1)}),
}
_TEXT_INPUTS: dict[str, Check] = {
    "plain_text_input": _element(
        {},
        {
            **_TYPED,
            "initial_value": string(3_000),
            "multiline": boolean,
            "min_length": integer(0, 3_000),
            "max_length": integer(1, 3_000),
        },
    ),
    "rich_text_input": _element(
        {}, {**_TYPED, "initial_value": _RICH_TEXT, "min_lines": integer(1, 100), "max_lines": integer(1, 100)}
    ),
    "email_text_input": _element({}, {**_TYPED, "initial_value": string()}),
    "url_text_input": _element({}, {**_TYPED, "initial_value": string()}),
    "number_input": _element(
        {"is_decimal_allowed": boolean},
        {**_TYPED, **dict.fromkeys(("initial_value", "min_value", "max_value"), string())},
    ),
    "file_input": _element({}, {"filetypes": _IDS, "max_files": integer(1, 10)}),
}
_BUTTONS: dict[str, Check] = {
    "button": _element(
        {"text": _text(75)},
        {
            **_BUTTON,
            "value": string(2_000),
            "url": _URL,
            "agent_prompt": string(4_000),
            "agent_prompt_display": string(),
            "visible_to_user_ids": _IDS,
        },
    ),
    "workflow_button": _element({"text": _text(75), "workflow": anything}, _BUTTON),
    "overflow": _element({"options": items(_OPTION, 1, 5)}, _CONFIRMED),
}
_CONTEXT_BUTTONS: dict[str, Check] = {
    "feedback_buttons": _element({"positive_button": _FEEDBACK, "negative_button": _FEEDBACK}, {}),
    "icon_button": _element(
        # "The trash icon is the only icon available at this time."
        {"text": _text(75), "icon": string(choices=("trash",))},
        {"accessibility_label": _LABEL, "value": string(2_000), "visible_to_user_ids": _IDS, **_CONFIRMED},
    ),
}
_IMAGE_ELEMENT = {"image": shape(_TYPE | _IMAGE[0], _IMAGE[1], one_of=tuple(_IMAGE[1]))}
_TEXTS = {"plain_text": _text(3_000), "mrkdwn": _text(3_000, "mrkdwn")}


def _block(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, one_of: Collection[str] = ()
) -> Check:
    return shape({**_TYPE, **required}, {"block_id": _ID, **(optional or {})}, one_of=one_of)


_SHARED_BLOCKS: dict[str, Check] = {
    "actions": _block(
        {"elements": items(variants(_BUTTONS | _MENUS | {"rich_text_input": _TEXT_INPUTS["rich_text_input"]}), 1, 25)}
    ),
    "context": _block({"elements": items(variants(_IMAGE_ELEMENT | _TEXTS), 1, 10)}),
    "divider": _block({}),
    "header": _block({"text": _text(150)}, {"level": integer(1, 4)}),
    "image": _block(_IMAGE[0], {**_IMAGE[1], "title": _text(2_000)}, one_of=tuple(_IMAGE[1])),
    "input": _block(
        {"label": _text(2_000), "element": variants(_MENUS | _TEXT_INPUTS)},
        {"hint": _text(2_000), "optional": boolean, "dispatch_action": boolean},
    ),
    "rich_text": _RICH_TEXT,
    "section": _block(
        {},
        {
            "text": _any_text(3_000),
            "fields": items(_any_text(2_000), 1, 10),
            "accessory": variants(_BUTTONS | _MENUS | _IMAGE_ELEMENT),
            "expand": boolean,
        },
        one_of=("text", "fields"),
    ),
    "video": _block(
        {
            "alt_text": string(2_000, min_chars=1),
            "video_url": string(3_000),
            "thumbnail_url": string(3_000),
            "title": _text(200),
        },
        {
            "title_url": _URL,
            "author_name": string(50),
            "provider_name": string(),
            "provider_icon_url": _URL,
            "description": _text(200),
        },
    ),
}
_CELL = variants(
    {
        "raw_text": shape(_TYPE | {"text": string(min_chars=1)}),
        "raw_number": anything,
        "rich_text": _RICH_TEXT,
    }
)
UNCHECKED_BLOCKS = frozenset(
    {
        "alert",
        "auth_provider",
        "call",
        "card",
        "carousel",
        "container",
        "data_table",
        "data_visualization",
        "file",
        "plan",
        "task_card",
    }
)
_MESSAGE_BLOCKS: dict[str, Check] = {
    **_SHARED_BLOCKS,
    **dict.fromkeys(UNCHECKED_BLOCKS, anything),
    "context_actions": _block({"elements": items(variants(_CONTEXT_BUTTONS), 1, 5)}),
    "markdown": _block({"text": string(MAX_MARKDOWN_BLOCK_CHARS, min_chars=1)}),
    "table": _block({"rows": items(items(_CELL, 0, 20), 1, 100)}, {"column_settings": items(anything, 0, 20)}),
}
_VIEW = {"private_metadata": string(3_000), "callback_id": _ID, "external_id": _ID}
_VIEW_BLOCKS = items(variants(_SHARED_BLOCKS), 0, MAX_VIEW_BLOCKS)
_VIEWS = {
    "modal": shape(
        _TYPE | {"title": _text(24), "blocks": _VIEW_BLOCKS},
        {
            **_VIEW,
            "submit": _text(24),
            "close": _text(24),
            **dict.fromkeys(("clear_on_close", "notify_on_close", "submit_disabled"), boolean),
        },
    ),
    "home": shape(_TYPE | {"blocks": _VIEW_BLOCKS}, _VIEW),
}
_BLOCKS_OF_MESSAGE = items(variants(_MESSAGE_BLOCKS), 0, MAX_BLOCKS)

#: Types of blocks and elements whose fields and limits are checked.
CHECKED_BLOCKS = frozenset(_MESSAGE_BLOCKS) - UNCHECKED_BLOCKS
CHECKED_ELEMENTS = frozenset(_BUTTONS | _CONTEXT_BUTTONS | _MENUS | _TEXT_INPUTS | _IMAGE_ELEMENT)


def check_blocks(blocks: object, *, path: str = "/blocks", error: str = "invalid_blocks") -> list[dict[str, Any]]:
    """Return the blocks of a message if Slack would accept them.

    Args:
        path: the JSON pointer of the blocks, for the errors.
        error: the code for blocks with errors.

    Raises:
        SlackError: `invalid_blocks_format`, `msg_blocks_too_long` or `error`.
    """
    if not isinstance(blocks, list) or not all(isinstance(b, dict) and "type" in b for b in blocks):
        raise SlackError("invalid_blocks_format")
    errors = [*_BLOCKS_OF_MESSAGE(blocks, path), *_find_duplicate_ids(blocks, path)]
    if sum(len(str(b.get("text", ""))) for b in blocks if b["type"] == "markdown") > MAX_MARKDOWN_BLOCK_CHARS:
        errors.append(
            f"markdown blocks must be less than {MAX_MARKDOWN_BLOCK_CHARS + 1} characters [json-pointer:{path}]"
        )
    if errors:
        raise SlackError(error, errors=errors)
    if len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > MAX_BLOCKS_JSON_CHARS:
        raise SlackError("msg_blocks_too_long")
    return blocks


def check_view(view: object, kind: str) -> dict[str, Any]:
    """Return a view's JSON if Slack would accept it.

    Args:
        kind: `modal` or `home`.

    Raises:
        SlackError: `invalid_arguments` or `view_too_large`.
    """
    if not isinstance(view, dict) or view.get("type") != kind:
        raise SlackError("invalid_arguments", messages=[f"[ERROR] must be a {kind} [json-pointer:/view/type]"])
    if len(json.dumps(view, ensure_ascii=False).encode()) > MAX_VIEW_BYTES:
        raise SlackError("view_too_large")
    errors = list(_VIEWS[kind](view, "/view"))
    if not errors:
        errors += _find_duplicate_ids(view["blocks"], "/view/blocks")
        if kind == "modal" and not view.get("submit") and any(block["type"] == "input" for block in view["blocks"]):
            errors.append("missing required field: submit [json-pointer:/view]")
    if errors:
        raise SlackError("invalid_arguments", messages=[f"[ERROR] {line}" for line in errors])
    return view


def _find_duplicate_ids(blocks: Sequence[Mapping[str, Any]], path: str) -> Iterator[str]:
    """Yield an error for each `block_id` that occurs twice, and each `action_id` twice in one block."""
    for id_, count in Counter(block.get("block_id") for block in blocks).items():
        if id_ and count > 1:
            yield f"`block_id` {id_} already exists [json-pointer:{path}]"
    for index, block in enumerate(blocks):
        elements = block.get("elements") if block["type"] in ("actions", "context_actions") else None
        ids = Counter(e.get("action_id") for e in elements or () if isinstance(e, dict))
        for id_, count in ids.items():
            if id_ and count > 1:
                yield f"`action_id` {id_} already exists [json-pointer:{path}/{index}/elements]"
