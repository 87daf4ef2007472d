"""Output of the commands: tables and text for people, JSON for programs.

All that a command prints goes through this module, which escapes the control characters in it: what users of the chat
wrote must not control the operator's terminal.
"""

import json
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from threading import Timer
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types
from rich import box
from rich.console import Console, JustifyMethod
from rich.live import Live
from rich.spinner import Spinner
from rich.style import Style
from rich.table import Table
from rich.text import Text

from core.observability.secret_redaction import redact_secrets

#: Width of the output if it is not a terminal, so that nothing is cut in a file.
_FILE_WIDTH = 200

#: Seconds before a progress spinner appears.
SPINNER_DELAY_SECONDS = 1.0

#: Styles of the words before check results.
_VERDICT_STYLES = {"ok": "green", "note": "yellow", "FAIL": "bold red"}

#: Characters that control a terminal or the direction of text, half characters, and line separators; not line feeds and
#: tabs.
_CONTROLS = regex.compile(r"[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029--[\n\t]]", regex.VERSION1)

#: Suffixes of the names of fields that are times (seconds since the epoch).
_TIME_SUFFIXES = ("_at", "at")


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right_aligned: Collection[str] = (),
    total: Sequence[object] | None = None,
) -> None:
    """Print a table; the first column never wraps.

    Without rows and `total`, only the line `TITLE: none` is printed. If all names of columns are empty, there is no
    header.
    """
    named = any(columns)
    table = Table(
        title=escape_controls(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_header=named
    )
    for place, column in enumerate(columns):
        justify: JustifyMethod = "right" if column in right_aligned else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=not place)
    for row in rows:
        table.add_row(*map(_cell, row))
    if total is not None:
        table.add_section()
        table.add_row(*map(_cell, total))
    if not table.row_count:
        print_lines(f"{title}: none")
        return
    _console().print(table)


def _cell(value: object) -> Text:
    return Text(escape_controls(f"{value:,}" if isinstance(value, int) else str(value)))


def format_user(name: str, id_: str) -> str:
    """Return `NAME (ID)`, or the id alone if the name is empty."""
    return f"{name} ({id_})" if name else id_


def print_lines(*lines: str) -> None:
    """Print lines without wrapping."""
    for line in lines:
        _console().print(Text(escape_controls(line)), soft_wrap=True)


def print_link(text: str, address: str) -> None:
    """Print a text that opens an address, in terminals that have links; others show only the text."""
    _console().print(Text(escape_controls(text), style=Style(link=address)), soft_wrap=True)


def print_error(*lines: str) -> None:
    """Print lines to standard error, without secrets."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(Text(escape_controls(redact_secrets(line))), soft_wrap=True)


def print_heading(text: str) -> None:
    _console().print(Text(escape_controls(text), style="bold"))


def print_wrapped(*paragraphs: str) -> None:
    """Print text, wrapped between words on a terminal; URLs stay whole."""
    for paragraph in paragraphs:
        for line in paragraph.splitlines() or [""]:
            _print_indented(Text(escape_controls(line)))


def print_verdict(word: str, line: str) -> None:
    """Print the verdict of a check (`ok`, `note` or `FAIL`), and a text about it."""
    _print_indented(Text.assemble((f"{word:4}", _VERDICT_STYLES.get(word, "")), f" {escape_controls(line)}"), indent=5)


def _print_indented(text: Text, indent: int = 0) -> None:
    console = _console()
    if console.is_terminal:
        first, *rest = _wrap(text.plain, console.width, " " * indent) or [""]
        text = Text("\n").join([text[: len(first)], *map(Text, rest)])
    console.print(text, soft_wrap=True)


def _wrap(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def write_text(text: str) -> None:
    """Write a piece of a longer text to standard output, without a line end.

    On a terminal, the spinner of `show_progress` stops first, and control characters are escaped. Otherwise the spinner
    continues, and the text is written unchanged.
    """
    if sys.stdout.isatty():
        _console()
        text = escape_controls(text)
    sys.stdout.write(text)


def print_json(value: object) -> None:
    _console().file.write(f"{escape_controls(json.dumps(to_jsonable(value), indent=2))}\n")


def to_jsonable(value: Any) -> Any:
    """Return a dataclass or container as JSON types; sets become sorted lists.

    Floats under keys that end in `at`, such as `created_at`, are times and become RFC 3339 in UTC.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return to_jsonable(asdict(value))
    match value:
        case Mapping():
            return {
                name: format_rfc3339(item)
                if name.endswith(_TIME_SUFFIXES) and isinstance(item, float)
                else to_jsonable(item)
                for name, item in value.items()
            }
        case set() | frozenset():
            return sorted(value)
        case list() | tuple():
            return [to_jsonable(item) for item in value]
        case _:
            return value


def format_rfc3339(at: float) -> str:
    """Return a time as RFC 3339 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def format_time(at: float) -> str:
    """Return a time as `YYYY-MM-DD HH:MM:SS` in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def format_duration(seconds: float | None) -> str:
    """Return seconds as text in a readable unit, such as `3.2 s` or `5 min`."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1_440} d"


def escape_controls(text: str) -> str:
    """Escape characters that control a terminal, in the way of JSON; line feeds and tabs stay."""
    escaped: str = _CONTROLS.sub(_escape_character, text)
    return escaped


def _escape_character(found: Any) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class ProgressSpinner:
    """Spinner on standard error, until `stop`.

    It appears `SPINNER_DELAY_SECONDS` after its creation, and only if standard error is a terminal.
    """

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        spinner = Spinner("dots", f"{title} …")
        # no stream is redirected: output that is printed meanwhile may go to a file
        self._live = Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._timer = Timer(SPINNER_DELAY_SECONDS, self._live.start)
        self._timer.daemon = True
        if console.is_terminal:
            self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()  # or a spinner that just started would stay
        self._live.stop()


_current_spinner = ContextVar[ProgressSpinner | None]("progress", default=None)


@contextmanager
def show_progress(title: str) -> Iterator[None]:
    """Show a spinner on standard error during the block, until this module prints."""
    spinner = ProgressSpinner(title)
    _current_spinner.set(spinner)
    try:
        yield
    finally:
        spinner.stop()


def _console() -> Console:
    if (spinner := _current_spinner.get()) is not None:
        spinner.stop()
    console = Console(highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(width=_FILE_WIDTH, highlight=False, markup=False, emoji=False)
