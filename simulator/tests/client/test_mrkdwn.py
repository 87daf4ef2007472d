from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from chatrig.client.mrkdwn import convert_blocks, convert_markdown, convert_mrkdwn

NAMES = {"@U1": "@ada", "#C1": "#general", "!here": "@here"}


def get_name(target: str) -> str:
    return NAMES[target]


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("*bold* and ~gone~ and _so_", "**bold** and ~~gone~~ and _so_"),
        ("2*3*4 stays", "2*3*4 stays"),
        ("<@U1> in <#C1>, <!here>", "**@ada** in **#general**, **@here**"),
        ("<https://a.example/x|the page> <https://b.example>", "[the page](https://a.example/x) https://b.example"),
        ("a &lt; b &amp;&amp; c", r"a \< b \&\& c"),
        ("one\ntwo", "one  \ntwo"),
        ("• first\n• second", "- first  \n- second"),
        ("at <!date^5^{time}|00:00 (UTC)>", "at 00:00 (UTC)"),
    ],
)
def test_mrkdwn_becomes_commonmark(text: str, markdown: str) -> None:
    assert convert_mrkdwn(text, get_name) == markdown


@pytest.mark.parametrize("text", ["**not bold in Slack**", "# no heading", "[no](link)"])
def test_markdown_unknown_to_mrkdwn_is_escaped(text: str) -> None:
    assert parse_text(convert_mrkdwn(text, get_name)) == text


def test_code_is_not_converted() -> None:
    assert convert_mrkdwn("`*a*` &amp; `x &lt; y`", get_name) == r"`*a*` \& `x < y`"
    assert convert_mrkdwn("```if a:\n  *b*```", get_name) == "\n```\nif a:\n  *b*\n```\n"


def test_markdown_text_keeps_its_markup_and_names_mentions() -> None:
    text = "# Title\n**bold** <@U1> <b>\n```\n<b> <@U1>\n```"
    assert convert_markdown(text, get_name) == "# Title\n**bold** **@ada** \\<b>\n```\n<b> <@U1>\n```"


def test_entities_in_code_of_markdown_are_decoded_once() -> None:
    text = "`&lt;b>` and\n```\n&amp;lt; R&amp;amp;D\n```"
    assert convert_markdown(text, get_name) == "`<b>` and\n```\n&lt; R&amp;D\n```"


def test_blocks_become_paragraphs() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": "Report *1*"}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "*well*"}},
        {"type": "markdown", "text": "1. **one**"},
        {"type": "divider"},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "by <@U1>"}]},
        {"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "Stop"}}]},
        {"type": "video"},
    ]
    assert convert_blocks(blocks, get_name).split("\n\n") == [
        r"**Report \*1\***",
        "**well**",
        "1. **one**",
        "---",
        "by **@ada**",
        "_(video)_",
    ]


def test_rich_text_becomes_plain_text() -> None:
    section = {
        "type": "rich_text_section",
        "elements": [
            {"type": "text", "text": "ask "},
            {"type": "user", "user_id": "U1"},
            {"type": "text", "text": " or "},
            {"type": "link", "url": "https://a.example"},
        ],
    }
    blocks = [{"type": "rich_text", "elements": [section]}]
    assert convert_blocks(blocks, get_name) == "ask **@ada** or https://a.example"


@given(st.text(alphabet="ab *_~`<>&[]()#@!|\n-•0.", max_size=60))
def test_any_text_can_be_converted(text: str) -> None:
    parse_text(convert_mrkdwn(text, lambda target: target))
    parse_text(convert_markdown(text, lambda target: target))


def parse_text(markdown: str) -> str:
    """Return the text of Markdown after parsing, without its markup."""
    inline = MarkdownIt("commonmark").enable("strikethrough").parse(markdown)
    return "".join(child.content for token in inline for child in token.children or ())
