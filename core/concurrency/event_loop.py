"""The clock of the event loop."""

import asyncio


def now() -> float:
    """Return the time of the running event loop's monotonic clock, in seconds."""
    return asyncio.get_running_loop().time()
