"""Puts the figures that are kept on the page and draws its pictures: `python -m benchmarks.replies.page`."""

from pathlib import Path

from benchmarks.replies import kept
from benchmarks.replies.load import CHANNELS, Ending
from benchmarks.replies.plot import plot
from benchmarks.replies.report import table

DOCS = Path("docs")

#: On the page, the figures are all that stands behind this line.
HEADING = "### All figures\n"


def main() -> None:
    cells = kept.everything()
    spread = [cell for cell in cells if cell.channels == CHANNELS.get(cell.replies)]
    for ending in Ending:
        (DOCS / "pictures" / f"replies-{ending.replace(' ', '-')}.svg").write_text(plot(spread, ending))
    page = DOCS / "benchmarks.md"
    before, heading, _ = page.read_text().partition(HEADING)
    page.write_text(f"{before}{heading}\n{table(cells)}\n")


if __name__ == "__main__":
    main()
