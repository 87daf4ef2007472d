"""A disk without room, or that can be read alone."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Leave no room on it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    ballast.unlink()


def close(disk: Path) -> None:
    """Have it take nothing any more."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
