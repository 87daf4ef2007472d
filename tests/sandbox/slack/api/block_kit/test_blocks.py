"""Block Kit: accepted and refused blocks and views."""

from typing import Any

import pytest

from sandbox.slack.api.block_kit.blocks import check_blocks, check_view
from sandbox.slack.api.requests import SlackError

PLAIN = {"type": "plain_text", "text": "Go"}


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 3_000}}],
        [{"type": "markdown", "text": "a" * 12_000}],
        [{"type": "divider"}] * 50,
        [{"type": "section", "fields": [{"type": "mrkdwn", "text": "a"}]}],
    ],
)
def test_blocks_at_the_size_limits_are_accepted(blocks: list[dict[str, Any]]) -> None:
    assert check_blocks(blocks) == blocks


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 3_001}}], "invalid_blocks"),
        ([{"type": "section"}], "invalid_blocks"),
        ([{"type": "header", "text": {"type": "plain_text", "text": "a" * 151}}], "invalid_blocks"),
        ([{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 2_999}}] * 5, "msg_blocks_too_long"),
        ([{"text": "a"}], "invalid_blocks_format"),
        ("blocks", "invalid_blocks_format"),
    ],
)
def test_invalid_blocks_are_rejected(blocks: object, error: str) -> None:
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
            [create_actions({"type": "button", "text": {"type": "plain_text", "text": "a" * 76}})],
            "less than 76 characters",
        ),
        (
            [create_actions(*[{"type": "button", "text": PLAIN, "action_id": "go"}] * 2)],
            "`action_id` go already exists",
        ),
        ([create_section(block_id="b"), create_section(block_id="b")], "`block_id` b already exists"),
        ([create_actions(*[{"type": "button", "text": PLAIN}] * 26)], "no more than 25 items allowed"),
        ([create_actions({"type": "static_select", "options": []})], "no fewer than 1 items allowed"),
        (
            [create_actions({"type": "overflow", "options": [{"text": PLAIN, "value": "v"}] * 6})],
            "no more than 5 items",
        ),
        ([{"type": "context", "elements": [PLAIN] * 11}], "no more than 10 items allowed"),
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
        ({"title": {"type": "plain_text", "text": "a" * 25}}, "less than 25 characters"),
        ({"blocks": [{"type": "markdown", "text": "a"}]}, "/view/blocks/0"),
        ({"private_metadata": "a" * 3_001}, "less than 3001 characters"),
        ({"colour": "red"}, "invalid additional property: colour"),
    ],
)
def test_a_modal_that_breaks_a_published_rule_is_refused(change: dict[str, Any], error: str) -> None:
    blocks = [{"type": "input", "label": PLAIN, "element": {"type": "plain_text_input"}}]
    with pytest.raises(SlackError) as refused:
        check_view({"type": "modal", "title": PLAIN, "submit": PLAIN, "blocks": blocks} | change, "modal")
    assert refused.value.code == "invalid_arguments"
    assert any(error in line for line in refused.value.messages)
