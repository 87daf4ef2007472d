"""Atomic file write: a reader finds the old file or the new one, never a part."""

import os
import tempfile
from pathlib import Path


def write_atomically(target: Path, data: bytes, *, mode: int) -> None:
    """Write a file so that readers find the old content or the new, never a part.

    The data is written to a new file in the same folder, synced to the disk, and renamed to `target`. After an
    `OSError`, the old file stays.
    """
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
