"""A file is there as a whole, or as it was."""

import os
import stat
from pathlib import Path

import pytest

from core.store.atomic_write import write_atomically


def test_a_file_takes_the_place_of_the_one_that_is_there(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"one", mode=0o600)
    write_atomically(tmp_path / "file", b"two", mode=0o644)
    assert (tmp_path / "file").read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_whatever_comes_in_between_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    (tmp_path / "file").write_bytes(b"one")

    def fails(*_args: object, **_more: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with pytest.raises(error):
            write_atomically(tmp_path / "file", b"two", mode=0o600)
    assert (tmp_path / "file").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]
