"""Puts the figures that are kept on the page and draws its pictures: `python -m benchmarks.replies.docs_page`."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.replies import results as kept
from benchmarks.replies.cell import Cell
from benchmarks.replies.load import CHANNELS, Ending
from benchmarks.replies.plot import plot
from benchmarks.replies.report import table

DOCS = Path("docs")

#: On the page, the figures are all that stands behind this line.
HEADING = "### All figures\n"


def side_by_side(cells: Sequence[Cell]) -> list[Cell]:
    """Of each load, the cells of the speed at which most contenders were measured."""
    speeds: defaultdict[object, Counter[float]] = defaultdict(Counter)
    for cell in cells:
        speeds[_load(cell)][cell.speed] += 1
    return [cell for cell in cells if cell.speed == speeds[_load(cell)].most_common(1)[0][0]]


def _load(cell: Cell) -> object:
    return cell.platform, cell.replies, cell.channels, cell.ending


def main() -> None:
    cells = side_by_side(kept.everything())
    spread = [cell for cell in cells if cell.channels == CHANNELS.get(cell.replies)]
    for ending in Ending:
        (DOCS / "pictures" / f"replies-{ending.replace(' ', '-')}.svg").write_text(plot(spread, ending))
    page = DOCS / "benchmarks.md"
    before, heading, _ = page.read_text().partition(HEADING)
    page.write_text(f"{before}{heading}\n{table(cells)}\n")


if __name__ == "__main__":
    main()
