"""Atomic writes: after a crash, a file has its old or its new content."""

import os
import stat
from pathlib import Path

import pytest

from core.store.atomic_write import write_atomically


def test_a_write_replaces_the_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"one", mode=0o600)
    write_atomically(tmp_path / "file", b"two", mode=0o644)
    assert (tmp_path / "file").read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_former_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    (tmp_path / "file").write_bytes(b"one")

    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(error):
            write_atomically(tmp_path / "file", b"two", mode=0o600)
    assert (tmp_path / "file").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]
