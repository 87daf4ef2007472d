"""Outcome of a soak: visible messages and remaining database rows."""

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

#: Limit for the bots to finish after the last message, in seconds.
REST = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a soak.

    Attributes:
        verdicts: the verdict on each session.
        unheard: unanswered messages that no bot has accepted, since none was connected.
        late: messages that the platform delivered after the turns of newer ones began (see `disordered` of the
            verdicts).
        histories: faults of the histories in requests.
        deaths: the number of unexpected exits of a bot.
        left: turns and messages that still wait in the databases.
        astray: messages of the bot outside all sessions.
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
    """Wait up to `REST` seconds until all is answered; return the unfinished work."""
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
    """Return the accepted messages."""
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(inbox.c.message))).scalars()
        return {name for row in rows if row is not None for name in names(str(row["text"]))}


async def begun_at(database: Database) -> dict[str, float]:
    """Return the start of each message's turn (monotonic seconds)."""
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
    """Judge all visible messages.

    Args:
        known: the accepted messages.
        begun: the start of each message's turn.
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
