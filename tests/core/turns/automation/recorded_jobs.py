"""Background tool of the crash tests, which appends each start to a file."""

import asyncio
from pathlib import Path

from core.tools import background

#: File with one line per start.
STARTS_FILE = "starts.txt"

#: Seconds of the work.
WORK_SECONDS = 0.3


@background
async def count_stars() -> dict[str, int]:
    """Count the stars."""
    _record_start()
    await asyncio.sleep(WORK_SECONDS)
    return {"stars": 9_096}


def _record_start() -> None:
    with Path(STARTS_FILE).open("a") as file:
        file.write("begun\n")
