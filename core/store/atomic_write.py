"""Atomic file write: a reader finds the old file or the new one, never a part."""

import os
import tempfile
from pathlib import Path


def write_atomically(target: Path, data: bytes, *, mode: int) -> None:
    """Write a file in its folder's place for it, in the stead of one that is there: whatever comes in between, nobody
    ever finds the half of it.

    Args:
        mode: who may read and write it, as `chmod` has it.

    Raises:
        OSError: it cannot be written; what was there is there still.
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
