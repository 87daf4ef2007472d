import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from chatrig.client.markdown import convert_discord

NAMES = {"1": "ada", "2": "general"}


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("**bold** and ~~gone~~ and _so_", "**bold** and ~~gone~~ and _so_"),
        ("__underlined__ and snake__case__name", "*underlined* and snake__case__name"),
        ("<@1>, <@!1> in <#2>, <@&9>", "**@ada**, **@ada** in **#general**, **@9**"),
        ("<:wave:123> <a:party:123> </reset:5>", ":wave: :party: **/reset**"),
        ("see <https://a.example/x>", "see https://a.example/x"),
        ("a < b", r"a \< b"),
        ("one\ntwo", "one  \ntwo"),
        ("-# small print", "*small print*"),
        ("> quoted\nnot quoted", "> quoted\n\nnot quoted"),
        (">>> all\nof it", "> all  \n> of it"),
        ("so:```py\nx = 1\n```", "so:\n```py\nx = 1\n```\n"),
        ("```x = 1```", "\n```\nx = 1\n```\n"),
    ],
)
def test_discord_markdown_becomes_commonmark(text: str, markdown: str) -> None:
    assert convert_discord(text, NAMES) == markdown


def test_a_timestamp_is_shown_as_a_local_time() -> None:
    assert convert_discord("<t:1700000000:R>", NAMES).startswith("2023-11-1")


@pytest.mark.parametrize(
    "text", ["| a | b |\n|---|---|\n| 1 | 2 |", "above\n---", "above\n===", "***", "#### small", ">unquoted", "<b>"]
)
def test_markdown_unknown_to_discord_is_escaped(text: str) -> None:
    assert parse_text(convert_discord(text, NAMES)) == text.replace("\n", "")


def test_an_image_becomes_a_link_after_an_exclamation_mark() -> None:
    assert parse_text(convert_discord("![a cat](https://a.example)", NAMES)) == "!a cat"


def test_code_is_not_converted() -> None:
    assert convert_discord("`<@1> | __x__`", NAMES) == "`<@1> | __x__`"


@given(st.text(alphabet="ab *_~`<>&[]()#@!|=\n-•0.:t/1", max_size=60))
def test_any_text_can_be_converted(text: str) -> None:
    parse_text(convert_discord(text, NAMES))


def parse_text(markdown: str) -> str:
    """Return the text of Markdown after parsing, without its markup."""
    inline = MarkdownIt("commonmark").enable(["strikethrough", "table"]).parse(markdown)
    return "".join(child.content for token in inline for child in token.children or ())
