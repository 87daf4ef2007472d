"""Tables of GitHub Flavored Markdown, and their rendering as aligned text."""

import re
from collections.abc import Callable, Sequence

from rich.cells import cell_len

#: Separator of two cells.
CELL_SEPARATOR = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+")
_GAP = " | "

_SPOILER = re.compile(r"\|\|(?=[^|\s])([^|]*[^|\s])\|\|")


def split_cells(line: str) -> list[str]:
    """Return the Markdown of each cell of a table row; an escaped `|` becomes a plain one."""
    row = line.strip().removeprefix("|")
    if row.endswith("|") and not row.endswith("\\|"):
        row = row[:-1]
    return [cell.strip().replace("\\|", "|") for cell in CELL_SEPARATOR.split(row)]


def has_cell_separator(line: str) -> bool:
    return "|" in line and CELL_SEPARATOR.search(line) is not None


def is_delimiter(line: str, head: str) -> bool:
    """Return whether a line is the delimiter row (`|---|`) for a header row with as many cells."""
    return "|" in line and bool(_DELIMITER.fullmatch(line)) and len(split_cells(line)) == len(split_cells(head))


class TextTable:
    """Table as text with aligned columns, for a fixed-width font.

    Args:
        render_cell: converts the Markdown of a cell to plain text.
        finds_spoilers: whether to look for spoilers (`||text||`); the text stays, without the marks.

    Attributes:
        has_spoiler: whether a row has a spoiler, so that the table must be hidden.
    """

    def __init__(
        self,
        head: str,
        delimiter: str,
        *,
        render_cell: Callable[[str], str],
        measure: Callable[[str], int],
        finds_spoilers: bool = False,
    ) -> None:
        self.has_spoiler = False
        self._finds_spoilers = finds_spoilers
        self._render_cell = render_cell
        self._measure = measure
        self._alignments = [_alignment(cell) for cell in split_cells(delimiter)]
        self._widths = [3] * len(self._alignments)
        self._rows: list[list[str]] = []
        self._size_beyond_width = 0
        self.add_row(head)

    def add_row(self, line: str) -> None:
        """Add a row; missing cells are empty, surplus ones are joined in the last column."""
        columns = len(self._widths)
        row = [self._render_cell(cell) for cell in self._split_cells(line)]
        row += [""] * (columns - len(row))
        row = [*row[: columns - 1], _GAP.join(row[columns - 1 :])]
        self._rows.append(row)
        for column, cell in enumerate(row):
            width = cell_len(cell)
            self._size_beyond_width += self._measure(cell) - (0 if self._is_ragged(column) else width)
            self._widths[column] = max(self._widths[column], width)

    def _split_cells(self, line: str) -> list[str]:
        """Return the cells of a row, without spoiler marks.

        Escaped marks are in one cell. Others are empty cells, unless the row has too many cells.
        """
        cells = split_cells(line)
        if not self._finds_spoilers:
            return cells
        if len(cells) != len(self._widths):
            cells = split_cells(_SPOILER.sub(r"\|\|\1\|\|", line))
        revealed = [_SPOILER.sub(r"\1", cell) for cell in cells]
        self.has_spoiler |= revealed != cells
        return revealed

    @property
    def size(self) -> int:
        """An upper bound of the size of the rendered lines, line ends included.

        The unit is that of `measure`. Adding a row never makes it smaller.
        """
        padded = sum(width for column, width in enumerate(self._widths) if not self._is_ragged(column))
        line = padded + len(_GAP) * (len(self._widths) - 1) + 1
        rule = sum(self._widths) + len(_GAP) * (len(self._widths) - 1) + 1
        return self._size_beyond_width + len(self._rows) * line + rule

    def render_lines(self) -> list[str]:
        """Return the table as text: the header, a rule and the rows, one line each."""
        head, *rows = self._rows
        ragged = self._is_ragged(len(self._widths) - 1)
        widths = [*self._widths[:-1], max(3, cell_len(head[-1]))] if ragged else self._widths
        rule = "-+-".join("-" * width for width in widths)
        return [self._render_row(head), rule, *map(self._render_row, rows)]

    def _is_ragged(self, column: int) -> bool:
        """Return whether a column needs no padding: the last one, if left-aligned."""
        return column == len(self._widths) - 1 and self._alignments[column] == "left"

    def _render_row(self, row: Sequence[str]) -> str:
        padded = (
            _pad(cell, width, aligned) for cell, width, aligned in zip(row, self._widths, self._alignments, strict=True)
        )
        return _GAP.join(padded).rstrip()


def _alignment(delimiter: str) -> str:
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return "left"


def _pad(cell: str, width: int, alignment: str) -> str:
    space = width - cell_len(cell)
    before = {"left": 0, "right": space, "center": space // 2}[alignment]
    return " " * before + cell + " " * (space - before)
