"""Block Kit at its published limits: accepted at each limit, refused beyond it.

Slack: docs.slack.dev/reference/block-kit and docs.slack.dev/reference/views; newer blocks by @slack/types 3.2.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from chatrig.slack.api.block_kit.blocks import check_blocks, check_view
from chatrig.slack.api.block_kit.elements import BUTTONS, CONTEXT_BUTTONS, IMAGE_ELEMENT, MENUS, TEXT_INPUTS
from chatrig.slack.api.requests import SlackError

Json = dict[str, Any]
Build = Callable[[Any], Json]
Value = Callable[[Any], Any]


def plain(text: str = "a") -> Json:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str = "a") -> Json:
    return {"type": "mrkdwn", "text": text}


OPTION: Json = {"text": plain(), "value": "v"}
BUTTON: Json = {"type": "button", "text": plain()}
IMAGE: Json = {"type": "image", "image_url": "https://example.com/a.png", "alt_text": "a"}
RICH_TEXT: Json = {
    "type": "rich_text",
    "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "a"}]}],
}
CELL: Json = {"type": "raw_text", "text": "a"}
CARD: Json = {"type": "card", "title": mrkdwn()}
CONFIRM: Json = {"title": plain(), "text": plain(), "confirm": plain(), "deny": plain()}
FEEDBACK: Json = {"text": plain(), "value": "v"}

#: Complete elements by type, with their required fields only.
ELEMENTS: Mapping[str, Json] = {
    "button": BUTTON,
    "workflow_button": {
        "type": "workflow_button",
        "text": plain(),
        "workflow": {"trigger": {"url": "https://a.example"}},
    },
    "overflow": {"type": "overflow", "options": [OPTION]},
    "feedback_buttons": {"type": "feedback_buttons", "positive_button": FEEDBACK, "negative_button": FEEDBACK},
    "icon_button": {"type": "icon_button", "icon": "trash", "text": plain()},
    "image": IMAGE,
    "static_select": {"type": "static_select", "options": [OPTION]},
    "multi_static_select": {"type": "multi_static_select", "options": [OPTION]},
    "radio_buttons": {"type": "radio_buttons", "options": [OPTION]},
    "checkboxes": {"type": "checkboxes", "options": [OPTION]},
    "number_input": {"type": "number_input", "is_decimal_allowed": True},
    **{
        kind: {"type": kind}
        for kind in (*MENUS, *TEXT_INPUTS)
        if kind not in ("static_select", "multi_static_select", "radio_buttons", "checkboxes", "number_input")
    },
}
#: Complete blocks by type, with their required fields only.
BLOCKS: Mapping[str, Json] = {
    "actions": {"type": "actions", "elements": [BUTTON]},
    "card": CARD,
    "carousel": {"type": "carousel", "elements": [CARD]},
    "container": {"type": "container", "title": plain(), "child_blocks": [{"type": "divider"}]},
    "context": {"type": "context", "elements": [plain()]},
    "context_actions": {"type": "context_actions", "elements": [ELEMENTS["feedback_buttons"]]},
    "data_table": {"type": "data_table", "caption": "a", "rows": [[CELL], [CELL]]},
    "divider": {"type": "divider"},
    "header": {"type": "header", "text": plain()},
    "image": IMAGE,
    "input": {"type": "input", "label": plain(), "element": {"type": "plain_text_input"}},
    "markdown": {"type": "markdown", "text": "a"},
    "plan": {"type": "plan", "title": "a"},
    "rich_text": RICH_TEXT,
    "section": {"type": "section", "text": mrkdwn()},
    "table": {"type": "table", "rows": [[CELL]]},
    "task_card": {"type": "task_card", "task_id": "t", "title": "a"},
    "video": {
        "type": "video",
        "alt_text": "a",
        "video_url": "https://example.com/a",
        "thumbnail_url": "https://example.com/a.png",
        "title": plain(),
    },
}
_LIST_MENUS = [kind for kind in MENUS if kind.startswith("multi_")]
_WITH_PLACEHOLDER = [kind for kind in MENUS if "picker" in kind or "select" in kind]


def in_block(element: Json) -> Json:
    """Return a Block Kit block that contains this element."""
    kind = element["type"]
    if kind in CONTEXT_BUTTONS:
        return {"type": "context_actions", "elements": [element]}
    if kind in IMAGE_ELEMENT:
        return {"type": "context", "elements": [element]}
    if kind in BUTTONS:
        return {"type": "actions", "elements": [element]}
    return {"type": "input", "label": plain(), "element": element}


def element(kind: str, field: str, build: Value) -> Build:
    """Return a function of a size that returns a block with an element.

    Args:
        kind: the element's type.
        field: the element's field to set.
        build: returns the field's value for a size.
    """
    return lambda size: in_block({**ELEMENTS[kind], field: build(size)})


def block(kind: str, field: str, build: Value) -> Build:
    """Return a function of a size that returns a block.

    Args:
        kind: the block's type.
        field: the block's field to set.
        build: returns the field's value for a size.
    """
    return lambda size: {**BLOCKS[kind], field: build(size)}


def chars(size: int) -> Any:
    return "a" * size


def plain_chars(size: int) -> Json:
    return plain("a" * size)


def repeat(item: Json) -> Value:
    return lambda size: [item] * size


def with_field(item: Json, field: str, build: Value) -> Value:
    return lambda size: item | {field: build(size)}


def as_list(build: Value) -> Value:
    return lambda size: [build(size)]


def list_texts() -> Iterator[tuple[str, Build, int]]:
    """Yield (name, builder, limit) of each field with a maximum number of characters."""
    for kind in ELEMENTS:
        if kind != "image":
            yield f"{kind}.action_id", element(kind, "action_id", chars), 255
    for kind in BLOCKS:
        yield f"{kind}.block_id", block(kind, "block_id", chars), 255
    for kind in ("button", "workflow_button", "icon_button"):
        yield f"{kind}.text", element(kind, "text", plain_chars), 75
        yield f"{kind}.accessibility_label", element(kind, "accessibility_label", chars), 75
    for field in ("positive_button", "negative_button"):
        yield f"{field}.text", element("feedback_buttons", field, with_field(FEEDBACK, "text", plain_chars)), 75
        yield f"{field}.value", element("feedback_buttons", field, with_field(FEEDBACK, "value", chars)), 2_000
    for kind in ("button", "icon_button"):
        yield f"{kind}.value", element(kind, "value", chars), 2_000
    yield "button.url", element("button", "url", chars), 3_000
    yield "button.agent_prompt", element("button", "agent_prompt", chars), 4_000
    for kind in _WITH_PLACEHOLDER:
        if kind != "datetimepicker":
            yield f"{kind}.placeholder", element(kind, "placeholder", plain_chars), 150
    for kind in ("plain_text_input", "rich_text_input", "email_text_input", "url_text_input", "number_input"):
        yield f"{kind}.placeholder", element(kind, "placeholder", plain_chars), 150
    yield "plain_text_input.initial_value", element("plain_text_input", "initial_value", chars), 3_000
    for field, limit in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
        yield f"confirm.{field}", element("button", "confirm", with_field(CONFIRM, field, plain_chars)), limit
    for field, limit in (("text", 75), ("description", 75)):
        yield f"option.{field}", element("overflow", "options", as_list(with_field(OPTION, field, plain_chars))), limit
    for field, limit in (("value", 150), ("url", 3_000)):
        yield f"option.{field}", element("overflow", "options", as_list(with_field(OPTION, field, chars))), limit
    groups = element("static_select", "option_groups", lambda n: [{"label": plain_chars(n), "options": [OPTION]}])
    yield "option_group.label", groups, 75
    yield "image.alt_text", element("image", "alt_text", chars), 2_000
    yield "image.image_url", element("image", "image_url", chars), 3_000
    yield "image block.title", block("image", "title", plain_chars), 2_000
    yield "header.text", block("header", "text", plain_chars), 150
    yield "section.text", block("section", "text", plain_chars), 3_000
    yield "section.fields", block("section", "fields", as_list(plain_chars)), 2_000
    yield "context.text", block("context", "elements", lambda n: [mrkdwn("a" * n)]), 3_000
    yield "markdown.text", block("markdown", "text", chars), 12_000
    for field in ("label", "hint"):
        yield f"input.{field}", block("input", field, plain_chars), 2_000
    for field, limit in (("title", 200), ("description", 200)):
        yield f"video.{field}", block("video", field, plain_chars), limit
    yield "video.author_name", block("video", "author_name", chars), 50
    for field, limit in (("title", 150), ("subtitle", 150), ("body", 200), ("subtext", 200)):
        yield f"card.{field}", block("card", field, plain_chars), limit
    for field in ("title", "subtitle"):
        yield f"container.{field}", block("container", field, plain_chars), 150


def list_arrays() -> Iterator[tuple[str, Build, int, int]]:
    """Yield (name, builder, minimum, maximum) of each array with a limited length."""
    yield "actions.elements", block("actions", "elements", repeat(BUTTON)), 1, 25
    yield "context.elements", block("context", "elements", repeat(plain())), 1, 10
    yield "context_actions.elements", block("context_actions", "elements", repeat(ELEMENTS["icon_button"])), 1, 5
    yield "section.fields", block("section", "fields", repeat(plain())), 1, 10
    yield "table.rows", block("table", "rows", lambda n: [[CELL]] * n), 1, 100
    yield "data_table.rows", block("data_table", "rows", lambda n: [[CELL]] * n), 2, 101
    yield "data_table.cells", block("data_table", "rows", lambda n: [[CELL] * n] * 2), 1, 20
    yield "carousel.elements", block("carousel", "elements", repeat(CARD)), 1, 10
    yield "container.child_blocks", block("container", "child_blocks", repeat({"type": "divider"})), 1, 10
    yield "overflow.options", element("overflow", "options", repeat(OPTION)), 1, 5
    for kind in ("static_select", "multi_static_select"):
        yield f"{kind}.options", element(kind, "options", repeat(OPTION)), 1, 100
    for kind in ("radio_buttons", "checkboxes"):
        yield f"{kind}.options", element(kind, "options", repeat(OPTION)), 1, 10
    group = {"label": plain(), "options": [OPTION]}
    yield "static_select.option_groups", element("static_select", "option_groups", repeat(group)), 1, 100


def list_numbers() -> Iterator[tuple[str, Build, int, int]]:
    """Yield (name, builder, minimum, maximum) of each field with a limited number."""
    yield "plain_text_input.min_length", element("plain_text_input", "min_length", int), 0, 3_000
    yield "plain_text_input.max_length", element("plain_text_input", "max_length", int), 1, 3_000
    for field in ("min_lines", "max_lines"):
        yield f"rich_text_input.{field}", element("rich_text_input", field, int), 1, 100
    yield "file_input.max_files", element("file_input", "max_files", int), 1, 10
    yield "datetimepicker", element("datetimepicker", "initial_date_time", int), 1_000_000_000, 9_999_999_999
    yield "header.level", block("header", "level", int), 1, 4
    yield "data_table.page_size", block("data_table", "page_size", int), 1, 100


def list_choices() -> Iterator[tuple[str, Build, tuple[str, ...]]]:
    """Yield (name, builder, values) of each field with a fixed set of values."""
    for kind in ("button", "workflow_button"):
        yield f"{kind}.style", element(kind, "style", str), ("primary", "danger")
    yield "icon_button.icon", element("icon_button", "icon", str), ("trash",)
    yield "confirm.style", element("button", "confirm", with_field(CONFIRM, "style", str)), ("primary", "danger")
    for kind in ("conversations_select", "multi_conversations_select"):
        types = ("im", "mpim", "private", "public")
        yield f"{kind}.filter", element(kind, "filter", lambda value: {"include": [value]}), types
    triggers = ("on_enter_pressed", "on_character_entered")
    dispatch = element("plain_text_input", "dispatch_action_config", lambda value: {"trigger_actions_on": [value]})
    yield "dispatch_action_config", dispatch, triggers
    yield (
        "table.align",
        block("table", "column_settings", lambda value: [{"align": value}]),
        ("left", "center", "right"),
    )
    statuses = ("pending", "in_progress", "complete", "error")
    yield "task_card.status", block("task_card", "status", str), statuses
    yield "container.width", block("container", "width", str), ("narrow", "standard", "wide", "full")


TEXTS, ARRAYS, NUMBERS, CHOICES = list(list_texts()), list(list_arrays()), list(list_numbers()), list(list_choices())


def find_errors(blocks: Json) -> list[str]:
    """Return the errors with which a message with this block is refused.

    The code is always `invalid_blocks`.
    """
    with pytest.raises(SlackError) as refused:
        check_blocks([blocks])
    assert refused.value.code == "invalid_blocks"
    return refused.value.errors or []


@pytest.mark.parametrize(("build", "limit"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_a_text_has_a_largest_number_of_characters(build: Build, limit: int) -> None:
    check_blocks([build(limit)])
    assert any(f"must be less than {limit + 1} characters" in line for line in find_errors(build(limit + 1)))


@pytest.mark.parametrize(("build", "low", "high"), [row[1:] for row in ARRAYS], ids=[row[0] for row in ARRAYS])
def test_an_array_has_a_smallest_and_a_largest_number_of_items(build: Build, low: int, high: int) -> None:
    check_blocks([build(low)])
    check_blocks([build(high)])
    assert any(f"no fewer than {low} items allowed" in line for line in find_errors(build(low - 1)))
    assert any(f"no more than {high} items allowed" in line for line in find_errors(build(high + 1)))


@pytest.mark.parametrize(("build", "low", "high"), [row[1:] for row in NUMBERS], ids=[row[0] for row in NUMBERS])
def test_a_number_is_in_its_range(build: Build, low: int, high: int) -> None:
    check_blocks([build(low)])
    check_blocks([build(high)])
    for wrong in (low - 1, high + 1):
        assert any(f"must be between {low} and {high}" in line for line in find_errors(build(wrong)))


@pytest.mark.parametrize(("build", "values"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
def test_a_field_has_one_of_its_values(build: Build, values: tuple[str, ...]) -> None:
    for value in values:
        check_blocks([build(value)])
    assert any("must be one of" in line for line in find_errors(build("other")))


@pytest.mark.parametrize("kind", _LIST_MENUS)
def test_a_menu_for_several_values_accepts_one_at_least(kind: str) -> None:
    check_blocks([in_block({**ELEMENTS[kind], "max_selected_items": 1})])
    assert find_errors(in_block({**ELEMENTS[kind], "max_selected_items": 0}))


@pytest.mark.parametrize(
    "block_", [*BLOCKS.values(), *map(in_block, ELEMENTS.values())], ids=[*BLOCKS, *(f"{k} element" for k in ELEMENTS)]
)
def test_a_block_needs_its_required_fields_and_no_unknown_one(block_: Json) -> None:
    check_blocks([block_])
    assert any("invalid additional property: colour" in line for line in find_errors(block_ | {"colour": "red"}))
    for name in block_.keys() - {"type"}:
        assert find_errors({key: value for key, value in block_.items() if key != name}), name


@pytest.mark.parametrize("kind", ELEMENTS)
def test_an_element_needs_its_required_fields_and_no_unknown_one(kind: str) -> None:
    complete = ELEMENTS[kind]
    for name in complete.keys() - {"type"}:
        assert find_errors(in_block({key: value for key, value in complete.items() if key != name})), name
    assert find_errors(in_block(complete | {"colour": "red"}))


def test_the_table_has_each_element() -> None:
    assert ELEMENTS.keys() == {*BUTTONS, *CONTEXT_BUTTONS, *MENUS, *TEXT_INPUTS, *IMAGE_ELEMENT}


@pytest.mark.parametrize(
    ("kind", "element_"),
    [
        ("actions", {"type": "plain_text_input"}),
        ("actions", IMAGE),
        ("actions", ELEMENTS["feedback_buttons"]),
        ("context", BUTTON),
        ("context_actions", BUTTON),
        ("carousel", {"type": "divider"}),
    ],
)
def test_an_element_of_another_block_is_refused(kind: str, element_: Json) -> None:
    assert any("unsupported type" in line for line in find_errors({**BLOCKS[kind], "elements": [element_]}))


def test_a_message_has_fifty_blocks_at_most() -> None:
    check_blocks([BLOCKS["divider"]] * 50)
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_blocks([BLOCKS["divider"]] * 51)


MODAL: Json = {"type": "modal", "title": plain(), "submit": plain(), "blocks": [BLOCKS["input"]]}
HOME: Json = {"type": "home", "blocks": [BLOCKS["section"]]}


@pytest.mark.parametrize(
    ("view", "field", "build", "limit"),
    [
        *((MODAL, field, plain_chars, 24) for field in ("title", "submit", "close")),
        *((view, "private_metadata", chars, 3_000) for view in (MODAL, HOME)),
        *((view, field, chars, 255) for view in (MODAL, HOME) for field in ("callback_id", "external_id")),
        *((view, "blocks", repeat(BLOCKS["divider"]), 100) for view in (MODAL, HOME)),
        (MODAL, "blocks", lambda n: [{"type": "alert", "text": plain_chars(n)}], 200),
    ],
)
def test_a_view_has_limits(view: Json, field: str, build: Value, limit: int) -> None:
    check_view(view | {field: build(limit)}, view["type"])
    with pytest.raises(SlackError, match="invalid_arguments"):
        check_view(view | {field: build(limit + 1)}, view["type"])


def test_a_view_has_a_size_limit() -> None:
    section = {"type": "section", "text": plain("a" * 3_000)}
    with pytest.raises(SlackError, match="view_too_large"):
        check_view(MODAL | {"blocks": [section] * 90}, "modal")


@pytest.mark.parametrize(("rows", "columns", "is_allowed"), [(100, 20, True), (101, 2, False), (2, 21, False)])
def test_a_table_in_markdown_has_the_limits_of_a_table_block(rows: int, columns: int, is_allowed: bool) -> None:
    row, delimiter = "| a " * columns + "|\n", "|-" * columns + "|\n"
    blocks = [{"type": "markdown", "text": f"| b |\n|---|\n| c |\n\n{row}{delimiter}{row * (rows - 1)}"}]
    if is_allowed:
        assert check_blocks(blocks) == blocks
        return
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_blocks(blocks)


@pytest.mark.parametrize("kind", ["markdown", "table", "card", "context_actions"])
def test_a_block_of_messages_is_refused_in_views(kind: str) -> None:
    for view in (MODAL, HOME):
        with pytest.raises(SlackError, match="invalid_arguments"):
            check_view(view | {"blocks": [BLOCKS[kind]]}, view["type"])


def test_an_alert_is_for_modals_only() -> None:
    alert = {"type": "alert", "text": plain(), "level": "warning"}
    check_view(MODAL | {"blocks": [alert]}, "modal")
    assert any("unsupported type: alert" in line for line in find_errors(alert))
