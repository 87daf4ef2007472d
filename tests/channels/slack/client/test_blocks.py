import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.client.blocks import NOTIFICATION_SIZE, message_content
from channels.slack.text import escape, escape_tokens
from chatrig.slack.state.markup import SlackContent, decode_entities, find_pings


def get_notification(text: str) -> str:
    """Return the characters that the notification of a message shows."""
    return decode_entities(message_content(text)["text"])


@pytest.mark.parametrize(
    ("text", "notification"),
    [
        ("# Title\n\n**bold** *it* ~~gone~~ `code`", "Title\nbold it gone code"),
        ("see [the page](https://x.y/a_b) and ![cat](https://x.y/c.png)", "see the page and cat"),
        ("| a | b |\n|---|---|\n| 1 | **2** |\n\nend", "a b\n1 2\nend"),
        ("> quote\n\n- one\n- two\n\n1. three", "quote\n- one\n- two\n1. three"),
        ("```py\nx = '**'\n```\n---\nend", "x = '**'\nend"),
        ("5 * 3 = 15, a_b_c, \\*no\\*", "5 * 3 = 15, a_b_c, *no*"),
        ("`&lt;b>` &lt;b> R&D &amp;lt;", "<b> <b> R&D &lt;"),
        ("&lt;!channel> &lt;@U1>", "<!channel> <@U1>"),
        ("", ""),
    ],
)
def test_a_notification_is_plain_text(text: str, notification: str) -> None:
    assert get_notification(text) == notification


@pytest.mark.parametrize(
    "text",
    ["**" + "word " * 200 + "**", f"[page](https://x.y/{'a' * 900}) x", "```\n" + "word\n" * 300, "| a |\n" * 200],
)
def test_a_long_notification_is_cut_without_open_marks(text: str) -> None:
    notification = get_notification(text)
    assert notification.endswith("…")
    assert len(notification) <= NOTIFICATION_SIZE
    assert not re.search(r"\*\*|`|\]\(", notification)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=8), st.sampled_from(["<!channel>", "<@U1>", "`", "```", "**", "&lt;", "&amp;", "\n"])
        )
    ).map("".join)
)
def test_no_notification_pings_anybody(text: str) -> None:
    content = message_content(escape_tokens(text))
    assert not find_pings(SlackContent(content["text"]), {})
    assert escape(decode_entities(content["text"])) == content["text"]


def test_a_notification_has_the_fallback_of_a_date() -> None:
    content = message_content("_until <!date^1764374400^{date_short_pretty} {time}|2025-11-29 00:00 (UTC)>._")
    assert content["text"] == "until 2025-11-29 00:00 (UTC)."
