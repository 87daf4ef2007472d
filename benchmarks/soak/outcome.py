"""What came of it, in the end: what the platforms show, and what is left in the databases."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import sqlalchemy as sa

from benchmarks.soak.script import Model, Verdict, disordered, is_late, judge, names
from benchmarks.soak.sessions import Platform, shown, unfinished
from benchmarks.soak.users import Session
from core.store.database import Database
from core.store.schema import inbox, turns
from core.turns.queries import is_active, is_waiting

#: Seconds for which the bots may work on when all is said.
REST = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        verdicts: of each session.
        unheard: messages without an answer that no bot has accepted: nobody listened when they were said.
        late: messages that were heard, as the platform knows, after the turns began that answer the newer ones before
            them in the verdicts' `disordered`.
        histories: what was wrong with what the model got to read.
        deaths: how often a bot ended by itself.
        left: turns and messages that are still waiting in the databases.
        astray: messages of the bot that stand in none of the sessions.
    """

    seed: int
    seconds: float
    verdicts: Sequence[tuple[Session, Verdict]]
    unheard: frozenset[str]
    late: frozenset[str]
    histories: Sequence[str]
    deaths: int
    left: int
    made: Counter[str]
    astray: int = 0


async def at_rest(databases: Sequence[Database], sessions: Sequence[Session]) -> int:
    """Wait until nothing is under way and all is answered, but no longer than `REST`; what still is under way."""
    waiting = sa.select(sa.func.count()).select_from(inbox).where(is_waiting(inbox))
    running = sa.select(sa.func.count()).select_from(turns).where(is_active(turns))
    deadline = time.monotonic() + REST
    while True:
        left = 0
        for database in databases:
            async with database.read() as connection:
                left += (await connection.execute(waiting)).scalar_one() + (
                    await connection.execute(running)
                ).scalar_one()
        is_done = not left and all(session.has(session.said) for session in sessions)
        if is_done or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.5)


async def accepted(database: Database) -> set[str]:
    """The messages that were."""
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(inbox.c.message))).scalars()
        return {name for row in rows if row is not None for name in names(str(row["text"]))}


async def begun_at(database: Database) -> dict[str, float]:
    """Return when the turn of each message began, on the monotonic clock, in seconds."""
    offset = time.monotonic() - time.time()
    begun = sa.select(inbox.c.message, turns.c.created_at).join(turns, turns.c.id == inbox.c.turn)
    async with database.read() as connection:
        rows = (await connection.execute(begun.where(inbox.c.message.is_not(None)))).all()
    return {name: row.created_at + offset for row in rows for name in names(str(row.message["text"]))}


def settled(
    seed: int,
    seconds: float,
    sessions: Sequence[Session],
    platforms: Sequence[Platform],
    model: Model,
    known: Set[str],
    begun: Mapping[str, float],
    *,
    deaths: int,
    left: int,
    made: Counter[str],
) -> Outcome:
    """Judge all that is shown.

    Args:
        known: the messages that were accepted.
        begun: when the turn of each message began.
    """
    verdicts = [(one, judge(one.said, shown(one.place), unfinished(one.place))) for one in sessions]
    lost = {id_ for _, verdict in verdicts for id_ in verdict.lost}
    pairs = [pair for _, verdict in verdicts for pair in verdict.disordered]
    heard_at = {name: at for platform in platforms for name, at in platform.heard_at().items()}
    in_time = {pair[0] for pair in pairs if not is_late(pair, heard_at, begun)}
    late = {older for older, _ in pairs} - in_time
    wrong = [order for order in model.orders if any(older not in late for older, _ in disordered(order))]
    return Outcome(
        seed,
        seconds,
        verdicts,
        frozenset(lost - known),
        frozenset(late),
        [*model.faults, *(f"order: {order}" for order in wrong)],
        deaths,
        left,
        made,
        sum(platform.spoken() for platform in platforms) - sum(len(one.place.told()) for one in sessions),
    )
