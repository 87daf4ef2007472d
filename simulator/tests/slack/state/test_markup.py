"""Slack markup in the simulator: rendered text, and pings."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrig.slack.state.markup import SlackContent, find_pings, render_text, to_rich_text

NAMES = {"U1": "ada", "C1": "general"}


def escape_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@given(st.text())
def test_an_escaped_text_is_shown_unchanged_and_pings_nobody(text: str) -> None:
    content = SlackContent(escape_text(text))
    assert render_text(content, NAMES) == text
    assert find_pings(content, NAMES) == frozenset()


@pytest.mark.parametrize(
    ("text", "sees", "called"),
    [
        ("<@U1> hi", "@ada hi", {"U1"}),
        ("<@U1|whoever>", "@ada", {"U1"}),
        ("<!here>, <!channel|x> and <!everyone>", "@here, @channel and @everyone", {"here", "channel", "everyone"}),
        ("<!subteam^S1|@team>", "@team", {"S1"}),
        ("<#C1> <https://a.example|label>", "#general label", set()),
        ("@channel a < b", "@channel a < b", set()),
        ("`<!here>`", "`@here`", {"here"}),
    ],
)  # fmt: skip
def test_tokens_are_shown_by_name_and_ping(text: str, sees: str, called: set[str]) -> None:
    assert render_text(SlackContent(text), NAMES) == sees
    assert find_pings(SlackContent(text), NAMES) == called


def test_code_in_markdown_pings_nobody() -> None:
    text = "`<!here>` <@U1>\n```\n<!channel>\n```"
    for content in (SlackContent(text, is_markdown=True), SlackContent(blocks=[{"type": "markdown", "text": text}])):
        assert find_pings(content, NAMES) == {"U1"}
        assert render_text(content, NAMES) == "`<!here>` @ada\n```\n<!channel>\n```"


def test_plain_names_ping_only_with_link_names() -> None:
    assert find_pings(SlackContent("@here @ada a@ada"), NAMES) == frozenset()
    assert find_pings(SlackContent("@here @ada a@ada", link_names=True), NAMES) == {"here", "U1"}


def test_all_texts_of_blocks_and_the_text_argument_ping() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": "<!channel>"}},
        {
            "type": "section",
            "text": {"type": "mrkdwn", "text": "<@U1>"},
            "fields": [{"type": "mrkdwn", "text": "<!here>"}],
        },
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "<@U2>"}]},
        {
            "type": "rich_text",
            "elements": [
                {
                    "type": "rich_text_section",
                    "elements": [
                        {"type": "text", "text": "to "},
                        {"type": "user", "user_id": "U3"},
                        {"type": "broadcast", "range": "everyone"},
                    ],
                }
            ],
        },
    ]
    content = SlackContent("<@U4>", blocks=blocks)
    assert find_pings(content, NAMES) == {"U1", "U2", "U3", "U4", "here", "everyone"}
    assert render_text(content, NAMES) == "<!channel>\n@ada\n@here\n@U2\nto @U3@everyone"


def test_a_plain_text_becomes_rich_text() -> None:
    (block,) = to_rich_text("<@U1> see <https://a.example|this> &amp; <!here>")
    assert block["elements"][0]["elements"] == [
        {"type": "user", "user_id": "U1"},
        {"type": "text", "text": " see "},
        {"type": "link", "url": "https://a.example", "text": "this"},
        {"type": "text", "text": " & "},
        {"type": "broadcast", "range": "here"},
    ]
