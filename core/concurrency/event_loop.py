"""The clock of the event loop."""

import asyncio


def now() -> float:
    """Return the seconds on the event loop's monotonic clock."""
    return asyncio.get_running_loop().time()
