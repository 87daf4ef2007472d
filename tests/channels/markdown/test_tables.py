from hypothesis import given
from hypothesis import strategies as st

from channels.markdown.tables import Columns, cells, is_delimiter, may_be_row


def columns(head: str, delimiter: str, *rows: str) -> Columns:
    made = Columns(head, delimiter, show=str, measure=len)
    for row in rows:
        made.add(row)
    return made


def test_a_row_is_read_with_and_without_its_outer_bars() -> None:
    assert cells("| a | b |") == cells("a | b") == ["a", "b"]
    assert cells("| a \\| b | |") == ["a | b", ""]
    assert may_be_row("a | b")
    assert not may_be_row("a \\| b")


def test_a_delimiter_has_as_many_cells_as_the_head() -> None:
    assert is_delimiter("|:-:|--:|", "| a | b |")
    assert not is_delimiter("|---|", "| a | b |")
    assert not is_delimiter("---", "a")
    assert not is_delimiter("|---|- -|", "| a | b |")


def test_columns_are_as_wide_as_readers_see_them() -> None:
    assert columns("|a|b|", "|-|-|", "|漢字|x|", "|👩‍👩‍👧‍👦|y|", "|e\u0301|z|").lines() == [
        "a    | b", "-----+----", "漢字 | x", "👩‍👩‍👧‍👦   | y", "e\u0301    | z",
    ]  # fmt: skip


def test_cells_that_are_missing_are_empty_and_none_is_lost() -> None:
    assert columns("|a|b|", "|-|-|", "|1|", "|1|2|3|").lines()[2:] == ["1   |", "1   | 2 | 3"]


_ROW = st.lists(st.text(st.sampled_from("ab 漢👍🏽\u0301"), max_size=9), max_size=4).map("|".join)


@given(st.lists(_ROW, max_size=9), st.sampled_from(["|-|-|", "|:-:|-:|", "|-:|:-:|"]))
def test_its_size_is_never_less_than_what_it_comes_to_and_only_grows(rows: list[str], delimiter: str) -> None:
    made, sizes = columns("|a|b|", delimiter), [0]
    for row in rows:
        made.add(row)
        sizes.append(made.size)
        assert sum(len(line) + 1 for line in made.lines()) <= made.size
    assert sizes == sorted(sizes)
