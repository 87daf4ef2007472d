"""Random faults of a soak test, one after the other, reproducible by a seed."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.soak.processes import SoakBotProcess
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from tests.processes.postgres import PostgresServer

#: Limits in seconds: for the reconnection of all bots, and of a database outage.
CONNECT_TIMEOUT_SECONDS, MAX_OUTAGE_SECONDS = 180.0, 2.0

SLACK_CALLS = ("chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream")
DISCORD_CALLS = ("POST /channels/{channel}/messages", "PATCH /channels/{channel}/messages/{message}")

#: Maximum number of consecutive calls with a fault.
MAX_FAULTY_CALLS = 4


class FaultInjector:
    """Injector of random faults in the bots, platforms and databases of a soak test.

    Args:
        bots: the bots on Slack, then the one on Discord.

    Attributes:
        counts: the number of faults of each kind.
    """

    def __init__(
        self,
        seed: int,
        slack: SlackSimulator,
        discord: DiscordSimulator,
        server: PostgresServer,
        bots: Sequence[SoakBotProcess],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._slack = slack
        self._discord = discord
        self._server = server
        self._bots = bots
        self._kinds: list[Callable[[], Awaitable[str]]] = [
            *(self._kill,) * 3,
            *(self._break_calls,) * 6,
            *(self._drop_sockets,) * 3,
            self._refuse_handshakes,
            self._redeliver_events,
            self._restart_database,
        ]

    async def inject_fault(self) -> None:
        """Cause one random fault; return when all bots run and are connected again.

        Raises:
            TimeoutError: a bot was not connected within `CONNECT_TIMEOUT_SECONDS`.
        """
        self.counts[await self._random.choice(self._kinds)()] += 1
        await self.wait_until_connected()

    async def wait_until_connected(self) -> None:
        """Start the bots that have exited, and wait until all bots are connected.

        Raises:
            TimeoutError: after `CONNECT_TIMEOUT_SECONDS`.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            while True:
                for bot in self._bots:
                    if not bot.is_alive:
                        await bot.start()
                if self._slack.connection_count >= len(self._bots) - 1 and self._discord.connection_count:
                    return
                await asyncio.sleep(0.1)

    async def _kill(self) -> str:
        bot = self._random.choice(self._bots)
        await bot.aclose()
        await asyncio.sleep(0.2)  # the platform must notice the kill
        return "kill -9"

    async def _break_calls(self) -> str:
        faults: Any = self._random.choice((self._slack.faults, self._discord.faults))
        call = self._random.choice(SLACK_CALLS if faults is self._slack.faults else DISCORD_CALLS)
        times = self._random.randint(1, MAX_FAULTY_CALLS)
        kind = self._random.choice(("5xx", "429", "lost response"))
        match kind:
            case "5xx":
                faults.fail(call, times, status=self._random.choice((500, 502, 503)))
            case "429":
                faults.rate_limit(call, 1, times)
            case "lost response":
                faults.lose_response(call, times)
        return kind

    async def _drop_sockets(self) -> str:
        await self._random.choice((self._slack, self._discord)).drop_sockets()
        return "cut sockets"

    async def _refuse_handshakes(self) -> str:
        simulator = self._random.choice((self._slack, self._discord))
        simulator.faults.refuse_handshakes(2)
        await simulator.drop_sockets()
        return "refused handshakes"

    async def _redeliver_events(self) -> str:
        for envelope in self._slack.envelopes[-5:]:
            if envelope.type == "events_api":
                await self._slack.redeliver(envelope)
        return "duplicate events"

    async def _restart_database(self) -> str:
        await asyncio.to_thread(self._server.stop)
        await asyncio.sleep(self._random.uniform(0.2, MAX_OUTAGE_SECONDS))
        await asyncio.to_thread(self._server.start)
        return "database restart"
