import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.markdown.dialect import MARKDOWN
from channels.markdown.inline import InlineParser
from channels.markdown.inline_renderer import escape_markdown, plain_text, remove_unfinished, render_inline

texts = st.lists(
    st.one_of(
        st.text(max_size=5),
        st.sampled_from(["**", "*", "_", "__", "~~", "`", "``", "[", "](", ")", "![", "<", "<b", ">", "\\", '"']),
        st.sampled_from(["word ", "https://x.y/a"]),
    ),
    max_size=20,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("plain", ()),
        ("**bold", ("**",)),
        ("**bold *both", ("**", "*")),
        ("***both", ("***",)),
        ("***both** one", ("*",)),
        ("**bold** _it", ("_",)),
        ("snake_case and 2 * 3 and a ** b", ()),
        ("_____ filled in", ()),
        ("\\*not", ()),
        ("`*code*` *it", ("*",)),
        ("*it `code", ("*", "`")),
        ("``a ` b", ("``",)),
        ("~~gone", ("~~",)),
        ("~one", ()),
        ("[*label*](https://x.y/*) *it", ("*",)),
        ("https://x.y/_a_ _it", ("_",)),
        ("**(bold)**", ()),
    ],
)
def test_the_open_marks_at_the_end_are_known(text: str, marks: tuple[str, ...]) -> None:
    assert InlineParser(text, is_growing=True).marks == marks


@pytest.mark.parametrize(
    "whole",
    [
        "`a * b`",
        "``a ` b``",
        "[label](https://x.y)",
        "[la [be] l](<https://x.y/a b>)",
        '[label](https://x.y/a_(b) "title")',
        "[![alt](https://x.y/i.png)](https://x.y)",
        "![alt](https://x.y/i.png)",
        "[label][name]",
        "<https://x.y|label of it>",
        "<@U1>",
        "https://x.y/z?a=b",
        "\\*",
    ],
)
def test_code_links_and_tokens_are_spans(whole: str) -> None:
    (span,) = InlineParser(f"see {whole} here").spans
    assert (span.start, span.end) == (4, 4 + len(whole))


@pytest.mark.parametrize("begun", ["[label", "[label]", "[label](", "[label](https://x.y/a_(b", "![alt](", "<@U1", "<"])
def test_an_unfinished_link_or_token_is_not_split(begun: str) -> None:
    assert list(InlineParser(f"see {begun}", is_growing=True).unsplittable_spans) == [(4, 4 + len(begun))]


def test_text_that_cannot_become_a_link_may_be_split() -> None:
    for text in ("see [label] and", "see [label](no link", "see <b and", "2 < 3 and"):
        assert InlineParser(text, is_growing=True).unfinished is None


@given(texts)
def test_the_standard_dialect_changes_nothing(text: str) -> None:
    assert render_inline(text, MARKDOWN).text in (text, "")


@given(texts)
def test_marks_that_are_closed_at_a_split_are_reopened(text: str) -> None:
    before = render_inline(text, MARKDOWN, is_cut=True)
    assert InlineParser("x", before.marks, is_growing=True).marks == before.marks


@given(texts)
def test_removing_the_unfinished_end_adds_no_text(text: str) -> None:
    signs = iter(text)
    assert all(character in signs for character in remove_unfinished(text))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("**bold** and *it* and `a*b`", "bold and it and a*b"),
        ("[page](https://x.y)", "page (https://x.y)"),
        ("[https://x.y](https://x.y)", "https://x.y"),
        ("snake_case 2*3 \\| \\*", "snake_case 23 | *"),
        ("~~gone~~ _it_", "gone it"),
    ],
)
def test_a_cell_is_plain_text(cell: str, text: str) -> None:
    assert plain_text(cell) == text


@given(st.text("ab_*~`[]()<>&|\\!#;:/ @", max_size=20))
def test_escaped_text_is_shown_as_it_is(text: str) -> None:
    shown = plain_text(f"a {escape_markdown(text)} a")
    assert shown == f"a {text} a"


def test_names_with_underscores_and_addresses_are_not_escaped() -> None:
    text = "full_name, see https://a.example/x_y_?a=1&b=2"
    assert escape_markdown(text) == text
