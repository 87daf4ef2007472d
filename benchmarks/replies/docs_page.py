"""Plots of the docs, from all saved cells: `python -m benchmarks.replies.docs_page`.

It also prints a table of the large loads.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.replies import results
from benchmarks.replies.cell import Cell
from benchmarks.replies.load import CHANNEL_COUNTS, Ending
from benchmarks.replies.plot import plot

DOCS = Path("docs")

#: Minimum number of replies in the table.
MIN_REPLIES = 50

HEADER = ("Replies in channels", "Project", "Refused", "Wrong", "Age", "End, mean", "End, p99")


def select_comparable_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Return, for each load, the cells of the speed with the most contenders.

    Cells with the same platform, replies, channels and ending have the same load. If two speeds have equally many, that
    of the first cell counts. Cells of other speeds are left out, since their figures are not comparable.
    """
    speeds: defaultdict[object, Counter[float]] = defaultdict(Counter)
    for cell in cells:
        speeds[_load_key(cell)][cell.speed] += 1
    return [cell for cell in cells if cell.speed == speeds[_load_key(cell)].most_common(1)[0][0]]


def _load_key(cell: Cell) -> object:
    return cell.platform, cell.replies, cell.channels, cell.ending


def compact_table(cells: Sequence[Cell]) -> str:
    """Return the cells as one Markdown table for each platform, with times in seconds.

    The rows are sorted by load: the numbers of replies and channels. The last row of each load has the least possible
    values.

    Args:
        cells: cells with the same ending, and with one speed per load.
    """
    blocks = []
    for platform in sorted({cell.platform for cell in cells}):
        rows = [HEADER, ("---", "---") + ("---:",) * (len(HEADER) - 2)]
        platform_cells = sorted((cell for cell in cells if cell.platform == platform), key=_sort_key)
        for _, group in groupby(platform_cells, key=_sort_key):
            load_cells = list(group)
            rows += [_row(cell) for cell in load_cells]
            rows.append(_floor_row(load_cells[0]))
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        blocks.append("\n".join([f"**{platform.title()}**", "", *lines]))
    return "\n\n".join(blocks)


def _sort_key(cell: Cell) -> tuple[int, int]:
    return cell.replies, cell.channels


def _row(cell: Cell) -> tuple[str, ...]:
    mark = " (CPU)" if cell.is_saturated else ""
    return (
        _load_label(cell),
        f"{cell.contender}{mark}",
        f"{sum(cell.refused.values()):,}",
        f"{cell.wrong}",
        f"{cell.age:.2f}",
        "-" if cell.wrong or cell.end_mean is None else f"{cell.end_mean:.2f}",
        "never" if cell.end_p99 is None else f"{cell.end_p99:.2f}",
    )


def _floor_row(cell: Cell) -> tuple[str, ...]:
    """Return the cells of the table row with the least possible values under a load.

    Args:
        cell: a measured cell of the load, whose floors are shown.

    Returns:
        The load, "*least possible*", two empty cells, and the least mean age, mean end and 99th percentile of the
        ends, in seconds.
    """
    times = (cell.age_floor, cell.end_mean_floor, cell.end_p99_floor)
    return (_load_label(cell), "*least possible*", "", "", *(f"{seconds:.2f}" for seconds in times))


def _load_label(cell: Cell) -> str:
    return f"{cell.replies} in {cell.channels}"


def main() -> None:
    cells = select_comparable_cells(results.list_cells())
    default_cells = [cell for cell in cells if cell.channels == CHANNEL_COUNTS.get(cell.replies)]
    for ending in Ending:
        (DOCS / "pictures" / f"replies-{ending.replace(' ', '-')}.svg").write_text(plot(default_cells, ending))
    large = [cell for cell in cells if cell.ending == Ending.SIMULTANEOUS and cell.replies >= MIN_REPLIES]
    print(compact_table(large))


if __name__ == "__main__":
    main()
