"""Receipts: the reaction that tells an author that a message was heard and waits for its turn."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from channels.pacer import Window
from channels.slack.calls import Caller
from core.errors import SurfaceError

log = logging.getLogger(__name__)

#: Slack: Tier 3 to add a reaction, Tier 2 to remove one; in calls a minute for an app in a workspace.
WINDOWS = {"reactions.add": Window(calls=50, seconds=60), "reactions.remove": Window(calls=20, seconds=60)}

EMOJI = "eyes"


class Receipts:
    """The reactions that stand. Nobody waits for them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._given: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def give(self, address: Mapping[str, Any]) -> None:
        """Set the sign."""
        task = asyncio.create_task(self._react("reactions.add", address))
        self._given[address["channel"], address["ts"]] = task

    def take_back(self, address: Mapping[str, Any]) -> None:
        """Take the sign away, if it was given."""
        given = self._given.pop((address["channel"], address["ts"]), None)
        if given is not None:
            task = asyncio.create_task(self._remove(given, address))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def settle(self, seconds: float) -> None:
        """Wait for what is under way, but no longer than so many seconds."""
        if under_way := [*self._given.values(), *self._leaving]:
            await asyncio.wait(under_way, timeout=seconds)

    async def _remove(self, given: asyncio.Task[None], address: Mapping[str, Any]) -> None:
        await given
        await self._react("reactions.remove", address)

    async def _react(self, method: str, address: Mapping[str, Any]) -> None:
        reaction = {"channel": address["channel"], "timestamp": address["ts"], "name": EMOJI}
        try:
            await self._caller.call(method, reaction, key=(method, address["team"]), window=WINDOWS[method])
        except SurfaceError as error:  # a nicety: the answer comes without it too
            log.info("no receipt: %s", error)
