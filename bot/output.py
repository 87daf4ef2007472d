"""What operators are shown: tables for people, JSON for machines."""

import json
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from threading import Timer
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

#: Columns of what is shown to no terminal, so that nothing is cut in a file.
_WIDE = 200

#: Seconds after which it is shown that something is going on.
PATIENCE = 1.0

#: How the words on findings are shown.
_VERDICTS = {"ok": "green", "note": "yellow", "FAIL": "bold red"}

#: What of a record is a time (seconds since the epoch).
_TIMES = ("_at", "at")


def show(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[str] = (),
    total: Sequence[object] | None = None,
) -> None:
    """Print a table; columns without names are facts. The first column is never broken.

    Args:
        numbers: the columns that are right-justified.
        total: the last row, set apart from the others.
    """
    named = any(columns)
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_header=named)
    for place, column in enumerate(columns):
        justify: JustifyMethod = "right" if column in numbers else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=not place)
    for row in rows:
        table.add_row(*map(_cell, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(_cell, total))
    if not table.row_count:
        say(f"{title}: none")
        return
    _console().print(table)


def _cell(value: object) -> Text:
    return Text(plain(f"{value:,}" if isinstance(value, int) else str(value)))


def person(name: str, id_: str) -> str:
    """Return how operators see a person: by name, where one is known, and by id."""
    return f"{name} ({id_})" if name else id_


def say(*lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        _console().print(Text(plain(line)), soft_wrap=True)


def heading(text: str) -> None:
    """Print what a new part is about."""
    _console().print(Text(plain(text), style="bold"))


def prose(*paragraphs: str) -> None:
    """Print text, on a terminal broken between words; an address never is."""
    for paragraph in paragraphs:
        for line in paragraph.splitlines() or [""]:
            _lay(Text(plain(line)))


def verdict(word: str, line: str) -> None:
    """Print a line with a word on it before it, in the same way."""
    _lay(Text.assemble((f"{word:4}", _VERDICTS.get(word, "")), f" {plain(line)}"), indent=5)


def _lay(text: Text, indent: int = 0) -> None:
    console = _console()
    if console.is_terminal:
        first, *more = _wrapped(text.plain, console.width, " " * indent) or [""]
        text = Text("\n").join([text[: len(first)], *map(Text, more)])
    console.print(text, soft_wrap=True)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def write(text: str) -> None:
    """Print a piece of something longer, as it is. Into a file, it is still shown that something goes on."""
    if sys.stdout.isatty():
        _console()
    sys.stdout.write(text)


def dump(value: object) -> None:
    """Print JSON."""
    _console().file.write(f"{json.dumps(jsonable(value), indent=2)}\n")


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


def short(at: float) -> str:
    """The same, for people."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


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


class Progress:
    """Shows, where there is a terminal, that something goes on, once it has taken a second and until it is over."""

    def __init__(self, what: str) -> None:
        console = Console(stderr=True)
        spinner = Spinner("dots", f"{what} …")
        # neither stream is taken over: what is printed meanwhile may be meant for a file
        self._live = Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._timer = Timer(PATIENCE, self._live.start)
        self._timer.daemon = True
        if console.is_terminal:
            self._timer.start()

    def end(self) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()  # or what it has begun to show would stay
        self._live.stop()


_going = ContextVar[Progress | None]("progress", default=None)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show that something goes on, until it is over or there is something else to be seen."""
    going = Progress(what)
    _going.set(going)
    try:
        yield
    finally:
        going.end()


def _console() -> Console:
    if (going := _going.get()) is not None:
        going.end()
    console = Console(highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(width=_WIDE, highlight=False, markup=False, emoji=False)
