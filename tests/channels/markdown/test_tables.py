from hypothesis import given
from hypothesis import strategies as st

from channels.markdown.tables import TextTable, has_cell_separator, is_delimiter, split_cells


def create_table(head: str, delimiter: str, *rows: str) -> TextTable:
    table = TextTable(head, delimiter, render_cell=str, measure=len)
    for row in rows:
        table.add_row(row)
    return table


def test_a_row_may_lack_its_outer_bars() -> None:
    assert split_cells("| a | b |") == split_cells("a | b") == ["a", "b"]
    assert split_cells("| a \\| b | |") == ["a | b", ""]
    assert has_cell_separator("a | b")
    assert not has_cell_separator("a \\| b")


def test_a_delimiter_row_has_as_many_cells_as_the_header() -> None:
    assert is_delimiter("|:-:|--:|", "| a | b |")
    assert not is_delimiter("|---|", "| a | b |")
    assert not is_delimiter("---", "a")
    assert not is_delimiter("|---|- -|", "| a | b |")


def test_columns_have_the_width_of_their_display() -> None:
    assert create_table("|a|b|", "|-|-|", "|漢字|x|", "|👩‍👩‍👧‍👦|y|", "|e\u0301|z|").render_lines() == [
        "a    | b", "-----+----", "漢字 | x", "👩‍👩‍👧‍👦   | y", "e\u0301    | z",
    ]  # fmt: skip


def test_missing_cells_are_empty_and_extra_cells_are_kept() -> None:
    assert create_table("|a|b|", "|-|-|", "|1|", "|1|2|3|").render_lines()[2:] == ["1   |", "1   | 2 | 3"]


_ROW = st.lists(st.text(st.sampled_from("ab 漢👍🏽\u0301"), max_size=9), max_size=4).map("|".join)


@given(st.lists(_ROW, max_size=9), st.sampled_from(["|-|-|", "|:-:|-:|", "|-:|:-:|"]))
def test_the_size_is_an_upper_bound_that_only_grows(rows: list[str], delimiter: str) -> None:
    table, sizes = create_table("|a|b|", delimiter), [0]
    for row in rows:
        table.add_row(row)
        sizes.append(table.size)
        assert sum(len(line) + 1 for line in table.render_lines()) <= table.size
    assert sizes == sorted(sizes)
