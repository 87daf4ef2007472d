"""The clock that waits and limits go by: that of the event loop, which nobody sets."""

import asyncio


def now() -> float:
    """Seconds since some moment or other."""
    return asyncio.get_running_loop().time()
