"""The clock of the event loop."""

import asyncio


def now() -> float:
    return asyncio.get_running_loop().time()
