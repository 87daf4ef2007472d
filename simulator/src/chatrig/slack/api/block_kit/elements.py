"""Checks of Block Kit's text objects, options, rich text and elements.

Slack: docs.slack.dev/reference/block-kit/block-elements and docs.slack.dev/reference/block-kit/composition-objects.
"""

from collections.abc import Collection, Mapping

from chatrig.slack.api.block_kit.shapes import Check, anything, boolean, integer, items, shape, string, variants

TYPE: dict[str, Check] = {"type": string()}
ID = string(255)
IDS = items(string())
URL = string(3_000)
_TEXT_FIELDS = {"plain_text": {"emoji": boolean}, "mrkdwn": {"verbatim": boolean}}


def text(max_chars: int, *kinds: str) -> Check:
    """Return a check that accepts a text object of 1 to `max_chars` characters.

    Args:
        kinds: the accepted types, `plain_text` and `mrkdwn`; none for `plain_text` only.
    """
    required = TYPE | {"text": string(max_chars, min_chars=1)}
    return variants({kind: shape(required, _TEXT_FIELDS[kind]) for kind in kinds or ("plain_text",)})


def any_text(max_chars: int) -> Check:
    return text(max_chars, "plain_text", "mrkdwn")


_STYLE = string(choices=("primary", "danger"))
#: Only the text is required in @slack/types.
_CONFIRM = shape({"text": any_text(300)}, {"title": text(100), "confirm": text(30), "deny": text(30), "style": _STYLE})
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
_LABEL = string(75)


def _option(text: Check) -> Check:
    return shape({"text": text, "value": string(150)}, {"description": any_text(75), "url": URL})


_OPTION, _MARKDOWN_OPTION = _option(text(75)), _option(any_text(75))
_OPTIONS, _FEW_OPTIONS = items(_OPTION, 1, 100), items(_MARKDOWN_OPTION, 1, 10)
_OPTION_LISTS = {
    "options": _OPTIONS,
    "option_groups": items(shape({"label": text(75), "options": _OPTIONS}), 1, 100),
}


def _element(required: Mapping[str, Check], optional: Mapping[str, Check], *, one_of: Collection[str] = ()) -> Check:
    """Return a check for an interactive element: a JSON object with these fields.

    Args:
        required: checks of the fields that an element must have, besides `type`.
        optional: checks of the fields that an element may have, besides `action_id`.
        one_of: optional fields of which an element must have at least one.
    """
    return shape({**TYPE, **required}, {"action_id": ID, **optional}, one_of=one_of)


_CONFIRMED = {"confirm": _CONFIRM}
_FOCUSED = {"focus_on_load": boolean}
_MENU = {"placeholder": text(150), **_CONFIRMED, **_FOCUSED}
_LIST_MENU = {**_MENU, "max_selected_items": integer(1)}
_TYPED = {"placeholder": text(150), **_FOCUSED, "dispatch_action_config": _DISPATCH}
_CONVERSATIONS = {"default_to_current_conversation": boolean, "filter": _FILTER}
_BUTTON = {"style": _STYLE, "accessibility_label": _LABEL, **_CONFIRMED}
_FEEDBACK = shape({"text": text(75), "value": string(2_000)}, {"accessibility_label": _LABEL})

_RICH_STYLE = shape(
    {},
    dict.fromkeys(
        ("bold", "italic", "strike", "code", "underline", "highlight", "client_highlight", "unlink"), boolean
    ),
)


def _rich(required: Mapping[str, Check], **optional: Check) -> Check:
    return shape({**TYPE, **required}, {"style": _RICH_STYLE, **optional})


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
_SECTION = shape(TYPE | {"elements": _RICH_ITEMS})
RICH_TEXT = shape(
    TYPE
    | {
        "elements": items(
            variants(
                {
                    "rich_text_section": _SECTION,
                    "rich_text_preformatted": shape(
                        TYPE | {"elements": _RICH_ITEMS}, {**_BORDER, "language": string()}
                    ),
                    "rich_text_quote": shape(TYPE | {"elements": _RICH_ITEMS}, _BORDER),
                    "rich_text_list": shape(
                        TYPE
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
    {"block_id": ID},
)

IMAGE: tuple[dict[str, Check], dict[str, Check]] = (
    {"alt_text": string(2_000, min_chars=1)},
    {"image_url": URL, "slack_file": _SLACK_FILE},
)

MENUS: dict[str, Check] = {
    "static_select": _element({}, {**_MENU, **_OPTION_LISTS, "initial_option": _OPTION}, one_of=tuple(_OPTION_LISTS)),
    "multi_static_select": _element(
        {}, {**_LIST_MENU, **_OPTION_LISTS, "initial_options": _OPTIONS}, one_of=tuple(_OPTION_LISTS)
    ),
    "external_select": _element({}, {**_MENU, "min_query_length": integer(0), "initial_option": _OPTION}),
    "multi_external_select": _element({}, {**_LIST_MENU, "min_query_length": integer(0), "initial_options": _OPTIONS}),
    "users_select": _element({}, {**_MENU, "initial_user": string()}),
    "multi_users_select": _element({}, {**_LIST_MENU, "initial_users": IDS}),
    "conversations_select": _element(
        {}, {**_MENU, **_CONVERSATIONS, "initial_conversation": string(), "response_url_enabled": boolean}
    ),
    "multi_conversations_select": _element({}, {**_LIST_MENU, **_CONVERSATIONS, "initial_conversations": IDS}),
    "channels_select": _element({}, {**_MENU, "initial_channel": string(), "response_url_enabled": boolean}),
    "multi_channels_select": _element({}, {**_LIST_MENU, "initial_channels": IDS}),
    "radio_buttons": _element({"options": _FEW_OPTIONS}, {**_CONFIRMED, **_FOCUSED, "initial_option": anything}),
    "checkboxes": _element({"options": _FEW_OPTIONS}, {**_CONFIRMED, **_FOCUSED, "initial_options": _FEW_OPTIONS}),
    "datepicker": _element({}, {**_MENU, "initial_date": string(10, min_chars=10)}),
    "timepicker": _element({}, {**_MENU, "initial_time": string(5, min_chars=5), "timezone": string()}),
    "datetimepicker": _element({}, {**_CONFIRMED, **_FOCUSED, "initial_date_time": integer(10**9, 10**10 - 1)}),
}
TEXT_INPUTS: dict[str, Check] = {
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
        {}, {**_TYPED, "initial_value": RICH_TEXT, "min_lines": integer(1, 100), "max_lines": integer(1, 100)}
    ),
    "email_text_input": _element({}, {**_TYPED, "initial_value": string()}),
    "url_text_input": _element({}, {**_TYPED, "initial_value": string()}),
    "number_input": _element(
        {"is_decimal_allowed": boolean},
        {**_TYPED, **dict.fromkeys(("initial_value", "min_value", "max_value"), string())},
    ),
    "file_input": _element({}, {"filetypes": IDS, "max_files": integer(1, 10)}),
}
BUTTONS: dict[str, Check] = {
    "button": _element(
        {"text": text(75)},
        {
            **_BUTTON,
            "value": string(2_000),
            "url": URL,
            "agent_prompt": string(4_000),
            "agent_prompt_display": string(),
            "visible_to_user_ids": IDS,
        },
    ),
    "workflow_button": _element({"text": text(75), "workflow": anything}, _BUTTON),
    "overflow": _element({"options": items(_OPTION, 1, 5)}, _CONFIRMED),
}
CONTEXT_BUTTONS: dict[str, Check] = {
    "feedback_buttons": _element({"positive_button": _FEEDBACK, "negative_button": _FEEDBACK}, {}),
    "icon_button": _element(
        # "The trash icon is the only icon available at this time."
        {"text": text(75), "icon": string(choices=("trash",))},
        {"accessibility_label": _LABEL, "value": string(2_000), "visible_to_user_ids": IDS, **_CONFIRMED},
    ),
}
IMAGE_ELEMENT = {"image": shape(TYPE | IMAGE[0], IMAGE[1], one_of=tuple(IMAGE[1]))}
TEXTS = {"plain_text": text(3_000), "mrkdwn": text(3_000, "mrkdwn")}
