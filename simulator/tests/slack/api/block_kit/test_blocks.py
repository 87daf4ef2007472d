"""Errors of Block Kit in the local Slack: codes and paths."""

from typing import Any

import pytest

from chatrig.slack.api.block_kit.blocks import check_blocks, check_view
from chatrig.slack.api.requests import SlackError

PLAIN = {"type": "plain_text", "text": "Go"}


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([{"type": "section"}], "invalid_blocks"),
        ([{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 2_999}}] * 5, "msg_blocks_too_long"),
        ([{"text": "a"}], "invalid_blocks_format"),
        ("blocks", "invalid_blocks_format"),
    ],
)
def test_invalid_blocks_are_rejected_with_slacks_code(blocks: object, error: str) -> None:
    with pytest.raises(SlackError) as refused:
        check_blocks(blocks)
    assert refused.value.code == error


def create_section(**fields: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": "a"}, **fields}


def create_actions(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([{"type": "paragraph", "text": PLAIN}], "/blocks/0"),
        ([create_section(text={"type": "mrkdown", "text": "a"})], "/blocks/0/text"),
        ([create_section(color="red")], "invalid additional property: color [json-pointer:/blocks/0]"),
        ([{"type": "image", "image_url": "https://example.com/a.png"}], "missing required field: alt_text"),
        ([create_actions({"type": "button", "text": {"type": "mrkdwn", "text": "Go"}})], "/blocks/0/elements/0/text"),
        (
            [create_actions(*[{"type": "button", "text": PLAIN, "action_id": "go"}] * 2)],
            "`action_id` go already exists",
        ),
        ([create_section(block_id="b"), create_section(block_id="b")], "`block_id` b already exists"),
        ([{"type": "header", "text": {"type": "mrkdwn", "text": "a"}}], "/blocks/0/text"),
    ],
)
def test_a_block_that_breaks_a_published_rule_is_refused_with_its_path(blocks: list[Any], error: str) -> None:
    with pytest.raises(SlackError) as refused:
        check_blocks(blocks)
    assert refused.value.code == "invalid_blocks"
    assert any(error in line for line in refused.value.errors or ())


def test_each_kind_of_input_is_accepted_in_a_modal() -> None:
    option = {"text": PLAIN, "value": "v"}
    elements: list[dict[str, Any]] = [
        {"type": "plain_text_input", "multiline": True},
        {"type": "number_input", "is_decimal_allowed": False},
        {"type": "static_select", "options": [option], "initial_option": option},
        {"type": "multi_static_select", "options": [option]},
        {"type": "radio_buttons", "options": [option]},
        {"type": "checkboxes", "options": [option]},
        {"type": "datepicker", "initial_date": "2026-11-25"},
        {"type": "email_text_input"},
    ]
    blocks = [{"type": "input", "label": PLAIN, "element": element} for element in elements]
    view = {"type": "modal", "title": PLAIN, "submit": PLAIN, "blocks": blocks}
    assert check_view(view, "modal") == view


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"submit": None}, "missing required field: submit"),
        ({"blocks": [{"type": "markdown", "text": "a"}]}, "/view/blocks/0"),
        ({"colour": "red"}, "invalid additional property: colour"),
    ],
)
def test_a_modal_that_breaks_a_published_rule_is_refused(change: dict[str, Any], error: str) -> None:
    blocks = [{"type": "input", "label": PLAIN, "element": {"type": "plain_text_input"}}]
    with pytest.raises(SlackError) as refused:
        check_view({"type": "modal", "title": PLAIN, "submit": PLAIN, "blocks": blocks} | change, "modal")
    assert refused.value.code == "invalid_arguments"
    assert any(error in line for line in refused.value.messages)
