import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.markdown.dialect import MARKDOWN
from channels.markdown.inline import Scan, plain, presentable, show

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
def test_what_is_open_at_the_end_is_known(text: str, marks: tuple[str, ...]) -> None:
    assert Scan(text, grows=True).marks == marks


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
def test_what_has_a_form_of_its_own_is_whole(whole: str) -> None:
    (span,) = Scan(f"see {whole} here").spans
    assert (span.start, span.end) == (4, 4 + len(whole))


@pytest.mark.parametrize("begun", ["[label", "[label]", "[label](", "[label](https://x.y/a_(b", "![alt](", "<@U1", "<"])
def test_what_may_become_a_link_or_a_token_is_not_cut(begun: str) -> None:
    assert list(Scan(f"see {begun}", grows=True).atoms) == [(4, 4 + len(begun))]


def test_what_cannot_become_one_any_more_may_be() -> None:
    for text in ("see [label] and", "see [label](no link", "see <b and", "2 < 3 and"):
        assert Scan(text, grows=True).begun is None


@given(texts)
def test_a_text_is_shown_as_it_is_where_the_dialect_is_plain(text: str) -> None:
    assert show(text, MARKDOWN).text in (text, "")


@given(texts)
def test_what_is_closed_at_a_cut_and_opened_behind_it_is_open_there(text: str) -> None:
    before = show(text, MARKDOWN, is_cut=True)
    assert Scan("x", before.marks, grows=True).marks == before.marks


@given(texts)
def test_what_is_presentable_says_nothing_that_was_not_said(text: str) -> None:
    said = iter(text)
    assert all(character in said for character in presentable(text))


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
    assert plain(cell) == text
