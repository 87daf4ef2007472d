"""Table of all cells as Markdown: a block per load, a row per contender."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from benchmarks.replies.cell import Cell
from benchmarks.replies.floors import LIMITS, min_joint_age
from benchmarks.replies.load import Ending, Load

HEADER = (
    "",
    "calls",
    "refused",
    "wrong",
    "age",
    "of floor",
    "of joint floor",
    "end, mean",
    "of floor",
    "end, median",
    "end, p99",
    "final limit used",
    "loop delay, p99 / longest busy",
)


def table(cells: Iterable[Cell]) -> str:
    """Return a Markdown table per load, with a row for each cell and one of floors.

    Cells that differ only in contender and speed are in one table, with the floors of the first.
    """
    blocks = []
    for (platform, replies, channels, ending), group in groupby(sorted(cells, key=_sort_key), key=_sort_key):
        load_cells = list(group)
        first = load_cells[0]
        speeds = sorted({cell.speed for cell in load_cells})
        title = (
            f"**{platform.title()}, {replies} {'reply' if replies == 1 else 'replies'} in {channels} "
            f"{'channel' if channels == 1 else 'channels'}, ending {ending}** "
            f"(speed {', '.join(f'{speed:g}' for speed in speeds)})"
        )
        floor = (
            "*floor*",
            "",
            "",
            "",
            f"{first.age_floor:.2f} s",
            "",
            f"{_joint_floor(first):.2f} s",
            f"{first.end_mean_floor:.2f} s",
            "",
            f"{first.end_median_floor:.2f} s",
            f"{first.end_p99_floor:.2f} s",
            "",
            "",
        )
        rows = [HEADER, ("---",) + ("---:",) * (len(HEADER) - 1), *map(_row, load_cells), floor]
        blocks.append("\n".join([title, "", *("| " + " | ".join(row) + " |" for row in rows)]))
    return "\n\n".join(blocks)


def format_line(cell: Cell) -> str:
    """Return the load and figures of a cell in one line, to print as progress."""
    load = f"{cell.platform}, {cell.replies} in {cell.channels}, {cell.ending}, speed {cell.speed:g}"
    return f"{load}: " + " | ".join(f"{name} {value}".strip() for name, value in zip(HEADER, _row(cell), strict=True))


def _sort_key(cell: Cell) -> tuple[str, int, int, str]:
    return cell.platform, cell.replies, cell.channels, cell.ending


def _row(cell: Cell) -> Sequence[str]:
    mark = " (CPU)" if cell.is_saturated else ""
    mean = None if cell.wrong else cell.end_mean  # without the lost replies, the mean would be too low
    return (
        cell.contender + mark,
        f"{cell.calls:,}",
        f"{sum(cell.refused.values()):,}",
        f"{cell.wrong}",
        f"{cell.age:.2f} s",
        f"x {cell.age / cell.age_floor:.2f}",
        f"x {cell.age / _joint_floor(cell):.2f}",
        "-" if mean is None else f"{mean:.2f} s",
        "-" if mean is None else f"x {mean / cell.end_mean_floor:.2f}",
        _format_seconds(cell.end_median),
        _format_seconds(cell.end_p99),
        "-" if cell.drain is None else f"{cell.drain:.0%}",
        f"{cell.late * 1000:.0f} / {cell.busiest * 1000:.0f} ms",
    )


def _joint_floor(cell: Cell) -> float:
    """Return the least possible age, in seconds, if replies end as early as possible.

    See `min_joint_age`.
    """
    return min_joint_age(Load(cell.replies, cell.channels, Ending(cell.ending), cell.speed), LIMITS[cell.platform])


def _format_seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"
