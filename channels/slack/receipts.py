"""Receipts: the reaction that tells an author that a message was heard and waits for its turn."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from channels.pacer import Window
from channels.slack.calls import Caller
from core.errors import SurfaceError

log = logging.getLogger(__name__)

#: Slack's Tier 3: 50 calls a minute for an app in a workspace.
TIER_3 = Window(calls=50, seconds=60)

EMOJI = "eyes"


class Receipts:
    """The reactions that stand."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._given: dict[tuple[str, str], asyncio.Task[None]] = {}

    def give(self, address: Mapping[str, Any]) -> None:
        """Set the sign, without waiting for it."""
        task = asyncio.create_task(self._react("reactions.add", address))
        self._given[address["channel"], address["ts"]] = task

    async def take_back(self, address: Mapping[str, Any]) -> None:
        """Take the sign away, if it was given."""
        given = self._given.pop((address["channel"], address["ts"]), None)
        if given is not None:
            await given
            await self._react("reactions.remove", address)

    async def _react(self, method: str, address: Mapping[str, Any]) -> None:
        reaction = {"channel": address["channel"], "timestamp": address["ts"], "name": EMOJI}
        try:
            await self._caller.call(method, reaction, key=(method, address["team"]), window=TIER_3)
        except SurfaceError as error:  # a nicety: the answer comes without it too
            log.info("no receipt: %s", error)
