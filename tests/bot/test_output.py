"""Terminal output for operators: progress lines, wrapped results and tables."""

import sys
import time
from contextlib import redirect_stdout
from io import StringIO

import pytest

from bot import output as tables


def test_output_during_a_progress_line_goes_to_its_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "SPINNER_DELAY_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # plays a terminal
    output, until = "", time.monotonic() + 10
    with redirect_stdout(StringIO()) as file, tables.show_progress("reading"):
        while "reading …" not in output and time.monotonic() < until:
            output += capsys.readouterr().err
        tables.write_text("one, ")
        sys.stdout.write("two")
    assert "reading …" in output
    assert file.getvalue() == "one, two"


def test_a_check_result_wraps_on_a_terminal_and_not_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"https://example.com/{'a' * 40}-{'b' * 40}"
    line = f"Discord: I am in no server, and nobody can write to me there. Invite me: {address}"
    tables.print_verdict("note", line)
    assert capsys.readouterr().out == f"note {line}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    tables.print_verdict("note", line)
    assert capsys.readouterr().out == (
        f"note Discord: I am in no server, and nobody can write to me\n     there. Invite me:\n     {address}\n"
    )


def test_numbers_are_right_justified_and_the_total_is_the_last_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["Ada (U1)", 1234], ["nobody", 5]]
    tables.print_table("Usage", ["user", "read"], rows, right_aligned=["read"], total=["in all", 1239])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert (lines[0], lines[1].split()) == ("Usage", ["user", "read"])
    assert lines[-3:] == ["Ada (U1)   1,234", "nobody         5", "in all     1,239"]
