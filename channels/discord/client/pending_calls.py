"""Calls that Discord has taken, and discord.py still holds."""

import asyncio
import json
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

from channels.discord.client.rate_limits import TAKEN


class Taking:
    """Waits for calls to take effect, and for no longer.

    discord.py keeps who has made a call, when it has taken effect, until the window is over in which it was the last
    one, or in which those under way leave no other; here, whoever wants to make the next one waits.
    """

    def __init__(self) -> None:
        self._resting = set[asyncio.Task[Any]]()

    async def taken(self, call: Coroutine[Any, Any, Any]) -> Any:
        """What Discord answers to `call`, as soon as it has taken it; what is raised until then is raised."""
        taken, context = asyncio.get_running_loop().create_future(), copy_context()
        context.run(TAKEN.set, taken)
        calling = asyncio.create_task(call, name="call", context=context)
        self._resting.add(calling)
        calling.add_done_callback(self._rested)
        await asyncio.wait([calling, taken], return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            calling.result()
        return json.loads(taken.result())

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
