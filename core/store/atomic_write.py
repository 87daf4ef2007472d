"""Atomic file write: a reader finds the old file or the new one, never a part."""

import os
import tempfile
from pathlib import Path


def write_atomically(target: Path, data: bytes, *, mode: int) -> None:
    """Write a file, or replace it, in one step.

    Args:
        mode: the permission bits, as in `chmod`.

    Raises:
        OSError: it cannot be written; the old file stays.
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
