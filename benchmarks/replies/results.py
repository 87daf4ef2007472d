"""Files of measured cells: one JSON file per cell in `.parley/bench-replies`."""

import json
from pathlib import Path

from benchmarks.replies.cell import Cell
from benchmarks.replies.contenders.base import ReplyContender
from benchmarks.replies.contenders.registry import CONTENDERS
from benchmarks.replies.load import Load

RESULTS_FOLDER = Path(".parley/bench-replies")


def find_cell(contender: ReplyContender, load: Load) -> Cell | None:
    """Return the saved cell of a contender under a load; None if there is none.

    A cell has the figures of one measurement: see `Cell`. `save_cell` writes it to `RESULTS_FOLDER`, in a file that is
    named by the contender and all parameters of the load.
    """
    file = _file(contender, load)
    return _read(file) if file.exists() else None


def save_cell(contender: ReplyContender, load: Load, cell: Cell) -> None:
    RESULTS_FOLDER.mkdir(parents=True, exist_ok=True)
    _file(contender, load).write_text(json.dumps(cell.as_json(), indent=1))


def list_cells() -> list[Cell]:
    """Return all saved cells, sorted by the order of the contenders.

    Raises:
        ValueError: a saved cell is of a contender that `CONTENDERS` no longer has.
    """
    names = [contender.name for contender in CONTENDERS]
    return sorted(map(_read, RESULTS_FOLDER.glob("*.json")), key=lambda cell: names.index(cell.contender))


def _file(contender: ReplyContender, load: Load) -> Path:
    name = f"{contender.platform} {contender.name} {load.replies} {load.channels} {load.ending} {load.speed:g}"
    return RESULTS_FOLDER / f"{name.replace(' ', '-')}.json"


def _read(file: Path) -> Cell:
    return Cell(**json.loads(file.read_text()))
