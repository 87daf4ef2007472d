"""The tools that are at work while a turn runs."""

import asyncio
import logging

log = logging.getLogger(__name__)


class Tools:
    """The tools that are at work."""

    def __init__(self) -> None:
        self._calls: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def began(self, call_id: str) -> None:
        self._calls.add(call_id)
        self._none.clear()

    def ended(self, call_id: str) -> None:
        self._calls.discard(call_id)
        if not self._calls:
            self._none.set()

    async def rest(self, seconds: float) -> None:
        """Wait until none is, but no longer than so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            log.warning("a tool is at work still, and is not waited for")
