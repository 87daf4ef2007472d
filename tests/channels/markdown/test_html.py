from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import Priority
from channels.discord.text import DiscordMarkdown, utf16_size
from channels.markdown.dialect import Dialect, MessageLimits
from channels.markdown.html import convert_html
from channels.markdown.inline_renderer import plain_text
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.text import SlackMarkdown, utf8_size

LIMITS = {
    "slack": MessageLimits(chunk_size=400, measure=utf8_size, status_reserve=20, dialect=SlackMarkdown()),
    "discord": MessageLimits(chunk_size=400, measure=utf16_size, dialect=DiscordMarkdown()),
}

both_platforms = pytest.mark.parametrize("platform", LIMITS)

html = st.lists(
    st.one_of(
        st.text(max_size=6),
        st.sampled_from(
            [
                *("<b>", "</b>", "<i>", "</em>", "<u>", "</u>", "<code>", "</code>", "<br>", "<sup>", "</sup>"),
                *("<li>", "</ul>", "<p>", "</p>", "<!--", "-->", '<a href="https://x.y">', "</a>", "&lt;", "&amp;"),
                *("&", ";", "\n", "\n\n", "<img src='https://x.y'>", "<https://x.y>", "<a@b.c>", "`", "**", "\\"),
                *("- ", "> ", "word " * 20, "| a |"),
            ]
        ),
    ),
    max_size=20,
).map("".join)


def plan_texts(text: str, platform: str, priority: Priority = Priority.FINAL) -> list[str]:
    planner = ChunkPlanner(LIMITS[platform])
    planner.feed(text)
    return [chunk.text for chunk in planner.plan(priority).chunks]


@both_platforms
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a<br>b<br/>c<BR />d", "a\nb\nc\nd"),
        ("a<br>\nb", "a\nb"),
        ("- a<br>b", "- a\n  b"),
        ("> a<br>b", "> a\n> b"),
        ("<b>b</b> <strong>s</strong> <i>i</i> <em>e</em> <del>d</del>", "**b** **s** *i* *e* ~~d~~"),
        ("<b>two <i>of</i></b>", "**two *of***"),
        ("a<b> spaced </b>, <b></b>z", "a **spaced** , z"),
        ("<b>note:</b>text", "**note**:text"),
        ("H<sub>2</sub>O, 10<sup>6</sup>, 1<sup>st</sup>", "H2O, 10^6, 1st"),
        ("<code>a_b*c</code> <kbd>x</kbd>", "`a_b*c` `x`"),
        ("<details>\n<summary>More</summary>\n\ntext\n</details>", "**More**\n\ntext"),
        ("<details><summary>More</summary>text</details>", "**More**\ntext"),
        ('<p align="center">one</p><p>two</p>', "one\ntwo"),
        ("<ul>\n<li>one</li>\n<li>two</li>\n</ul>", "- one\n- two"),
        ('<a href="https://x.y/?a=1&amp;b=2">the <b>page</b></a>', "[the **page**](https://x.y/?a=1&b=2)"),
        ('<a href="https://evil.example">bank.example</a>', "bank.example (https://evil.example)"),
        ('<a href="#part">part</a>', "part"),
        ('<img alt="a cat" src="https://x.y/cat.png">', "[a cat](https://x.y/cat.png)"),
        ("a&nbsp;b &copy; &gt; &#65; R&amp;D", "a\u00a0b © > A R&D"),
        ("&#42;no&#42; &lbrack;x](https://y.z)", "\\*no\\* \\[x]\\(https://y.z)"),
        ("https://x.y/?a=1&lt=2&amp=3&amp;b", "https://x.y/?a=1&lt=2&amp=3&b"),
        ("a <!-- no\none --> b", "a  b"),
        ("a\n\n<!-- no\n\n- one\n-->\n\nb", "a\n\nb"),
        ("- a\n- <!-- no\n\n one -->\n- b", "- a\n- b"),
        ("<!-- no\n--> a", "a"),
        ("<b>x", "x"),
        ("a < b, x <= y, 1 <2", "a < b, x <= y, 1 <2"),
    ],
)
def test_html_becomes_markdown(platform: str, written: str, expected: str) -> None:
    assert plan_texts(written, platform) == [expected]


def test_only_discord_underlines() -> None:
    assert plan_texts("<u>x</u>", "discord") == ["__x__"]
    assert plan_texts("<u>x</u>", "slack") == ["x"]


@both_platforms
@pytest.mark.parametrize(
    "text", ["List<String>", "Map<K, V>", "<T>", "Vec<u>, Box<i>", "FC<P>", "cp <source> <file>", "x <y and z> w"]
)
def test_unknown_tags_and_type_parameters_are_text(platform: str, text: str) -> None:
    (shown,) = plan_texts(text, platform)
    assert shown.replace("&lt;", "<") == text


@both_platforms
@pytest.mark.parametrize("code", ["`{}`", "```\n{}\n```", "- a\n  ```\n  {}\n  ```"])
def test_html_in_code_is_unchanged(platform: str, code: str) -> None:
    for html in ("<br>", "<b>x</b>", "<!-- x -->", "&nbsp;", "&lt;"):
        (shown,) = plan_texts(code.format(html), platform)
        decoded = shown.replace("&lt;", "<").replace("&amp;", "&") if platform == "slack" else shown
        assert html in decoded


def test_a_cell_with_html_stays_in_its_row() -> None:
    table = "| a | b |\n|---|---|\n| one<br>two <!-- no --> | <b>x</b>&nbsp;&lt; `<br>` |"
    assert plan_texts(table, "slack") == ["| a | b |\n|---|---|\n| one two  | **x**\u00a0< `&lt;br>` |"]
    (shown,) = plan_texts(table, "discord")
    assert shown.split("\n")[-2].rstrip() == "one two  | x\u00a0< <br>"


@both_platforms
@pytest.mark.parametrize("start", ["", "text ", "- ", "> ", "a\n\n", "**bold "])
def test_no_part_of_a_growing_comment_is_shown(platform: str, start: str) -> None:
    planner = ChunkPlanner(LIMITS[platform])
    for character in f"{start}<!-- secret **x** `y` <b> > https://x.y --> end":
        planner.feed(character)
        for chunk in planner.plan(Priority.STREAM_UPDATE).chunks:
            assert not [part for part in ("<", "!", "secret", "x.y", "--") if part in chunk.text]
    assert "end" in planner.plan(Priority.FINAL).chunks[-1].text


@both_platforms
def test_a_comment_longer_than_a_message_is_hidden(platform: str) -> None:
    comment = f"<!-- {'secret ' * 200}\n\n{'secret ' * 200}-->"
    assert plan_texts(f"a\n\n{comment}\n\nb", platform) == ["a", "b"]


@both_platforms
def test_a_comment_ends_with_its_block_quote(platform: str) -> None:
    assert "\n".join(plan_texts("> a\n> <!-- secret\n\nb", platform)).split() == [">", "a", "b"]


@both_platforms
def test_bold_html_goes_on_after_a_split(platform: str) -> None:
    chunks = plan_texts(f"<b>{'word ' * 100}</b>end", platform)
    assert len(chunks) > 1
    assert all(chunk.startswith("**word") and chunk.count("**") == 2 for chunk in chunks)


@both_platforms
@pytest.mark.parametrize(
    ("so_far", "seen"),
    [
        ("x <b>bo", "x **bo**"),
        ("x <b", "x"),
        ("a&nb", "a"),
        ("<a href='https://x.y'>pa", "pa"),
    ],
)
def test_growing_html_is_completed(platform: str, so_far: str, seen: str) -> None:
    assert plan_texts(so_far, platform, Priority.STREAM_UPDATE) == [seen]


@given(html, st.sampled_from(sorted(LIMITS)), st.sampled_from(Priority))
def test_every_chunk_with_html_fits(text: str, platform: str, priority: Priority) -> None:
    limits = LIMITS[platform]
    for chunk in plan_texts(text, platform, priority):
        assert limits.measure(chunk) <= limits.chunk_size - limits.status_reserve


@given(st.lists(st.sampled_from(["a", " ", "&lt;", "&amp;lt;", "&amp;", "&", "<", ">", "lt;", ";", "<T>", "<@U1>"])))
def test_entities_in_prose_are_decoded_once(pieces: list[str]) -> None:
    text = f"x{''.join(pieces)}x"
    assert convert_html(text, Dialect()) == plain_text(text) == unescape(text)
