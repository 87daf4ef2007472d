"""What hears and keeps what is said, before there is an agent and while there is one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from channels.base import Channel
from channels.services import Desk, Reask, Reshow
from core.store.database import Database
from core.turns.store import Turns
from core.turns.turn import Turn
from core.turns.worker import Worker
from core.usage.prices import Prices
from core.workers.lease import Lease


@dataclass(frozen=True, slots=True)
class Answers:
    """What answers, as soon as the agent is there."""

    answer: Callable[[Turn], Awaitable[None]]
    reshow: Reshow
    reask: Reask


@dataclass(frozen=True, slots=True)
class Hearing:
    """The parts.

    Attributes:
        channels: by their names.
        answers: what is still loaded.
    """

    database: Database
    lease: Lease
    prices: Prices
    turns: Turns
    worker: Worker
    channels: Mapping[str, Channel]
    desk: Desk
    answers: asyncio.Future[Answers]
