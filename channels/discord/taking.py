"""Calls that Discord has taken, and discord.py still holds."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

from channels.discord.headers import LAST_TAKEN


class Taking:
    """Waits for calls to take effect, and for no longer.

    discord.py lets who has made the last call of a window wait, when it has taken effect, until that is over; here,
    whoever wants to make the next one does.
    """

    def __init__(self) -> None:
        self._resting = set[asyncio.Task[Any]]()

    async def taken(self, call: Coroutine[Any, Any, Any]) -> None:
        """Wait until Discord has taken `call`; what it raises until then is raised."""
        taken, context = asyncio.Event(), copy_context()
        context.run(LAST_TAKEN.set, taken)
        calling = asyncio.create_task(call, name="call", context=context)
        self._resting.add(calling)
        calling.add_done_callback(self._rested)
        waiting = asyncio.create_task(taken.wait(), name="taken")
        try:
            await asyncio.wait([calling, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not taken.is_set():
            calling.result()

    async def aclose(self) -> None:
        """Wait for nothing more."""
        for call in self._resting:
            call.cancel()
        if self._resting:
            await asyncio.wait(self._resting)

    def _rested(self, call: asyncio.Task[Any]) -> None:
        self._resting.discard(call)
        if not call.cancelled():
            call.exception()  # whoever waited for it has it
