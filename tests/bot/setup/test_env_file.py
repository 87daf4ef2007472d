"""Values written to `.env`: they parse as written, and other lines do not change."""

import io
import os
import re
import stat
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import example, given
from hypothesis import strategies as st

from bot.setup.env_file import EnvFile
from core.errors import SettingsError

#: Existing lines of a file.
LINES = (
    "# a comment",
    "",
    "A=1",
    "export A='one'  # behind it",
    'A = "two \\" # not a comment"',
    "A=it is # one",
    "A=#5",
    "A",
    "# A=...      # an example",
    "B='over\nlines'",
    "no setting at all",
    "C=${A}",
    "D=\r",
)

#: Possible answers.
VALUES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1).filter(
    lambda text: "${" not in text
)


@given(before=st.lists(st.sampled_from(LINES)).map("\n".join), value=VALUES)
@example(before="A=1 # one", value="p'a\\ss#word")
@example(before="A=1\nA=2", value="3")
def test_a_written_value_is_read_back_and_other_lines_stay(
    tmp_path_factory: pytest.TempPathFactory, before: str, value: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_bytes(before.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)  # this test does not need the disk
        EnvFile(path).set_value("A", value)
        after = path.read_bytes().decode()
        EnvFile(path).set_value("A", value)
    assert path.read_bytes().decode() == after
    assert parse_env(after) == {**parse_env(before), "A": value}
    assert EnvFile(path).values["A"] == value
    others = [line for line in before.split("\n") if not re.match(r"(export )?A", line)]
    assert [line for line in others if line not in after.split("\n")] == []


def test_a_replaced_value_keeps_the_rest_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    for before, after in (
        ("\n\nexport A='one'  # behind it\r\nB=2", "\n\nexport A=new  # behind it\r\nB=2"),
        ("A = it is # one\n", "A=new # one\n"),
        ("A\n", "A=new\n"),
        ("B=2", "B=2\nA=new\n"),
        ("B=2\n# A=...   # there\n\nC=3\n", "B=2\n# A=...   # there\nA=new\n\nC=3\n"),
    ):
        path.write_bytes(before.encode())
        EnvFile(path).set_value("A", "new")
        assert path.read_bytes().decode() == after


def test_the_target_of_a_link_is_written_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "kept" / "settings"
    file.parent.mkdir()
    file.touch(0o666)
    (tmp_path / ".env").symlink_to(file)
    EnvFile(tmp_path / ".env").set_value("A", "1")
    assert (tmp_path / ".env").is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().endswith("\nA=1\n")


def test_an_unwritable_or_unreadable_file_is_reported_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n")
    with pytest.raises(SettingsError, match=r"A: .* cannot contain this value"):
        EnvFile(path).set_value("A", "p${HOME}")
    assert path.read_text() == "A=1\n"
    path.write_bytes(b"A=\xff")
    with pytest.raises(SettingsError, match="it is not UTF-8 text"):
        EnvFile(path)
    with pytest.raises(SettingsError, match="it cannot be read"):
        EnvFile(tmp_path)


def parse_env(text: str) -> dict[str, str | None]:
    return dict(dotenv_values(stream=io.StringIO(text), interpolate=False))
