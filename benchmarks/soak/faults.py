"""Faults of a soak, one after the other, from a seed."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.soak.processes import Bot
from sandbox.discord import DiscordSandbox
from sandbox.postgres import PostgresSandbox
from sandbox.slack import SlackSandbox

#: Limit of reconnecting, and of a database outage, in seconds.
CONNECT_TIMEOUT, AWAY = 180.0, 2.0

SLACK_CALLS = ("chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream")
DISCORD_CALLS = ("POST /channels/{channel}/messages", "PATCH /channels/{channel}/messages/{message}")

#: Maximum number of consecutive calls with a fault.
CALLS = 4


class Trouble:
    """Fault injector.

    Args:
        bots: the bots on Slack, then the one on Discord.

    Attributes:
        made: the number of faults of each kind.
    """

    def __init__(
        self, seed: int, slack: SlackSandbox, discord: DiscordSandbox, server: PostgresSandbox, bots: Sequence[Bot]
    ) -> None:
        self.made: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._slack = slack
        self._discord = discord
        self._server = server
        self._bots = bots
        self._kinds: list[Callable[[], Awaitable[str]]] = [
            *(self._kill,) * 3,
            *(self._break_calls,) * 6,
            *(self._drop,) * 3,
            self._refuse,
            self._redeliver,
            self._restart_database,
        ]

    async def make(self) -> None:
        """Cause one fault, and restart what it ended."""
        self.made[await self._dice.choice(self._kinds)()] += 1
        await self.settle()

    async def settle(self) -> None:
        """Start the ended bots, and wait until all are connected."""
        async with asyncio.timeout(CONNECT_TIMEOUT):
            while True:
                for bot in self._bots:
                    if not bot.is_alive:
                        await bot.start()
                if self._slack.connection_count >= len(self._bots) - 1 and self._discord.connection_count:
                    return
                await asyncio.sleep(0.1)

    async def _kill(self) -> str:
        bot = self._dice.choice(self._bots)
        await bot.aclose()
        await asyncio.sleep(0.2)  # the platform must notice the kill
        return "kill -9"

    async def _break_calls(self) -> str:
        faults: Any = self._dice.choice((self._slack.faults, self._discord.faults))
        call = self._dice.choice(SLACK_CALLS if faults is self._slack.faults else DISCORD_CALLS)
        times = self._dice.randint(1, CALLS)
        kind = self._dice.choice(("500", "429", "lost reply"))
        match kind:
            case "500":
                faults.fail(call, times, status=self._dice.choice((500, 502, 503)))
            case "429":
                faults.rate_limit(call, 1, times)
            case "lost reply":
                faults.lose_response(call, times)
        return kind

    async def _drop(self) -> str:
        await self._dice.choice((self._slack, self._discord)).drop_sockets()
        return "dropped sockets"

    async def _refuse(self) -> str:
        sandbox = self._dice.choice((self._slack, self._discord))
        sandbox.faults.refuse_handshakes(2)
        await sandbox.drop_sockets()
        return "refused handshakes"

    async def _redeliver(self) -> str:
        for envelope in self._slack.envelopes[-5:]:
            if envelope.type == "events_api":
                await self._slack.redeliver(envelope)
        return "events sent twice"

    async def _restart_database(self) -> str:
        await asyncio.to_thread(self._server.stop)
        await asyncio.sleep(self._dice.uniform(0.2, AWAY))
        await asyncio.to_thread(self._server.start)
        return "database restarted"
