"""Tables of GitHub's Markdown, and as text in columns for a platform that has none."""

import re
from collections.abc import Callable, Sequence
from copy import copy

from rich.cells import cell_len

#: What parts two cells.
BAR = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+")
_GAP = " | "


def cells(line: str) -> list[str]:
    """What stands in the cells of a table's row."""
    row = line.strip().removeprefix("|")
    if row.endswith("|") and not row.endswith("\\|"):
        row = row[:-1]
    return [cell.strip().replace("\\|", "|") for cell in BAR.split(row)]


def may_be_row(line: str) -> bool:
    return "|" in line and BAR.search(line) is not None


def is_delimiter(line: str, head: str) -> bool:
    """Whether `line` makes the line before it the head of a table."""
    return "|" in line and bool(_DELIMITER.fullmatch(line)) and len(cells(line)) == len(cells(head))


class Columns:
    """A table in columns of one width each, for a fixed-width font.

    `size` is what its lines and their ends come to at the most; it only ever grows.

    Args:
        head: the line of the table's head.
        delimiter: the line under it.
        show: makes plain text of what is written in a cell.
        measure: the size of a text in the platform's own unit.
    """

    def __init__(self, head: str, delimiter: str, *, show: Callable[[str], str], measure: Callable[[str], int]) -> None:
        self._show = show
        self._measure = measure
        self._aligned = [_alignment(cell) for cell in cells(delimiter)]
        self._widths = [3] * len(self._aligned)
        self._rows: list[list[str]] = []
        self._unpadded = 0
        self.add(head)

    def fork(self) -> "Columns":
        """Another one that goes on from here."""
        fork = copy(self)
        fork._widths, fork._rows = [*self._widths], [*self._rows]
        return fork

    def add(self, line: str) -> None:
        row, most = [self._show(cell) for cell in cells(line)], len(self._widths)
        row += [""] * (most - len(row))
        row = [*row[: most - 1], _GAP.join(row[most - 1 :])]
        self._rows.append(row)
        for column, cell in enumerate(row):
            width = cell_len(cell)
            self._unpadded += self._measure(cell) - (0 if self._is_ragged(column) else width)
            self._widths[column] = max(self._widths[column], width)

    @property
    def size(self) -> int:
        padded = sum(width for column, width in enumerate(self._widths) if not self._is_ragged(column))
        line = padded + len(_GAP) * (len(self._widths) - 1) + 1
        rule = sum(self._widths) + len(_GAP) * (len(self._widths) - 1) + 1
        return self._unpadded + len(self._rows) * line + rule

    def lines(self) -> list[str]:
        head, *rows = self._rows
        ragged = self._is_ragged(len(self._widths) - 1)
        widths = [*self._widths[:-1], max(3, cell_len(head[-1]))] if ragged else self._widths
        rule = "-+-".join("-" * width for width in widths)
        return [self._line(head), rule, *map(self._line, rows)]

    def _is_ragged(self, column: int) -> bool:
        """Whether it needs no spaces behind its cells."""
        return column == len(self._widths) - 1 and self._aligned[column] == "left"

    def _line(self, row: Sequence[str]) -> str:
        padded = (
            _pad(cell, width, aligned) for cell, width, aligned in zip(row, self._widths, self._aligned, strict=True)
        )
        return _GAP.join(padded).rstrip()


def _alignment(delimiter: str) -> str:
    if delimiter.endswith(":"):
        return "center" if delimiter.startswith(":") else "right"
    return "left"


def _pad(cell: str, width: int, aligned: str) -> str:
    space = width - cell_len(cell)
    before = {"left": 0, "right": space, "center": space // 2}[aligned]
    return " " * before + cell + " " * (space - before)
