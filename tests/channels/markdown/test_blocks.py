import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.markdown.blocks import BlockContext, BlockParser, LineKind


def parse_kinds(text: str) -> list[str]:
    reader = BlockParser(BlockContext(), lambda _head, _delimiter, _row: True)
    return [reader.parse_line(line).name for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("# one\n##two\n####### x\n#", "HEADING TEXT TEXT HEADING"),
        ("text\n\n---\n* * *\n- x\n--", "TEXT BLANK RULE RULE TEXT TEXT"),
        ("```py\n\n~~~\n```", "FENCE CODE CODE FENCE_END"),
        ("````\n```\n`````", "FENCE CODE FENCE_END"),
        ("```a`b\n~~~a`b", "TEXT FENCE"),
        ("    ```\ntext", "TEXT TEXT"),
        ("```\n    ```\n```x\n``` ", "FENCE CODE CODE FENCE_END"),
        ("- one\n\n  ```\n  x\n  ```", "TEXT BLANK FENCE CODE FENCE_END"),
        ("10. one\n\n    ```\n    x\n    ```", "TEXT BLANK FENCE CODE FENCE_END"),
        ("- ```py\n  x\n  ```", "FENCE CODE FENCE_END"),
        ("> ```\n> x\nover", "FENCE CODE TEXT"),
        ("> ```\n> x\n> ```\n> y", "FENCE CODE FENCE_END TEXT"),
        ("| a |\n|---|\n| 1 |\nover", "TEXT DELIMITER ROW TEXT"),
        ("a | b\n--|--\n1 | 2\n\n1 | 2", "TEXT DELIMITER ROW BLANK TEXT"),
        ("| a | b |\n|---|", "TEXT TEXT"),
        ("```\n| a |\n|---|", "FENCE CODE CODE"),
    ],
)
def test_lines_have_their_commonmark_kinds(text: str, names: str) -> None:
    assert parse_kinds(text) == names.split()


_LINES = st.sampled_from(
    ["```", "````", "~~~", "```py", "text", "", "  ```", "   ~~~~", "# title", "---", "``` x", "~~~ `x`", "`` x", "***"]
)


@given(st.lists(_LINES, max_size=15))
def test_code_blocks_start_and_end_as_in_commonmark(lines: list[str]) -> None:
    blocks = [token.map for token in MarkdownIt("commonmark").parse("\n".join(lines)) if token.type == "fence"]
    inside = {number for block in blocks if block for number in range(*block)}
    fences = {
        number for number, name in enumerate(parse_kinds("\n".join(lines))) if name in ("FENCE", "CODE", "FENCE_END")
    }
    assert fences - inside <= {len(lines) - 1, *(n for n, line in enumerate(lines) if not line)}
    assert inside <= fences


def test_a_table_that_does_not_fit_is_text() -> None:
    reader = BlockParser(BlockContext(), lambda _head, _delimiter, row: "long" not in row)
    assert [reader.parse_line(line) for line in ("| a |", "|---|", "| long |", "| 1 |")] == [
        LineKind.TEXT, LineKind.DELIMITER, LineKind.TEXT, LineKind.TEXT,
    ]  # fmt: skip
