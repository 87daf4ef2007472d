"""What operators are shown: tables for people, JSON for machines."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from threading import Timer
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Columns of what is shown to no terminal, so that nothing is cut in a file.
_WIDE = 200

#: Seconds after which it is shown that something is going on.
PATIENCE = 1.0

#: What of a record is a time (seconds since the epoch).
_TIMES = ("_at", "at")


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left", header_style="bold", expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(str(cell))) for cell in row))
    _console().print(table)


def say(*lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        _console().print(Text(plain(line)), soft_wrap=True)


def dump(value: object) -> None:
    """Print JSON."""
    sys.stdout.write(f"{json.dumps(jsonable(value), indent=2, sort_keys=False)}\n")


def jsonable(value: Any) -> Any:
    """A record as JSON, with times as RFC 3339 in UTC."""
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    match value:
        case Mapping():
            return {
                name: moment(item) if name.endswith(_TIMES) and isinstance(item, float) else jsonable(item)
                for name, item in value.items()
            }
        case set() | frozenset():
            return sorted(value)
        case list() | tuple():
            return [jsonable(item) for item in value]
        case _:
            return value


def moment(at: float) -> str:
    """A time (seconds since the epoch) in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def span(seconds: float | None) -> str:
    """Seconds as people read them; empty for none."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1_440} d"


def plain(text: str) -> str:
    """`text` without what a terminal would obey."""
    return "".join("�" if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char != "\n" else char for char in text)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show, where there is a terminal, that something goes on, once it has taken a second."""
    console = Console(stderr=True)
    status = console.status(f"{what} …")
    timer = Timer(PATIENCE, status.start)
    timer.daemon = True
    if console.is_terminal:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        status.stop()


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(width=_WIDE, highlight=False, markup=False, emoji=False)
