"""Outcome of a soak test, from visible messages and remaining database rows."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import sqlalchemy as sa

from benchmarks.soak.script import CheckingModel, SessionVerdict, find_names, find_out_of_order, is_late, judge
from benchmarks.soak.sessions import SoakPlatform, count_unfinished, visible_text
from benchmarks.soak.users import UserSession
from core.store.database import Database
from core.store.schema import inbox, turns
from core.turns.queries import is_active, is_waiting

#: Limit for the bots to finish after the last message, in seconds.
IDLE_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a soak test. Messages are named like `s3-14` (see `script`).

    Attributes:
        seconds: the duration.
        verdicts: the verdict on each session.
        unreceived: names of messages without a complete answer that are in no inbox.
        late: names of messages that the platform delivered after the turns of newer ones began (see `out_of_order` of
            the verdicts).
        history_faults: descriptions of wrong histories in model requests.
        unexpected_exits: the number of exits of a bot that no fault caused.
        unfinished_work: the number of turns and messages that still wait in the databases.
        counts: the number of faults of each kind.
        orphan_count: the number of the bot's messages outside all sessions.
    """

    seed: int
    seconds: float
    verdicts: Sequence[tuple[UserSession, SessionVerdict]]
    unreceived: frozenset[str]
    late: frozenset[str]
    history_faults: Sequence[str]
    unexpected_exits: int
    unfinished_work: int
    counts: Counter[str]
    orphan_count: int = 0


async def wait_until_idle(databases: Sequence[Database], sessions: Sequence[UserSession]) -> int:
    """Wait until every message is answered, up to `IDLE_TIMEOUT_SECONDS`.

    Also waits until no turn runs and no message waits in the databases.

    Returns:
        The number of unfinished turns and waiting messages in the databases; above 0 only after the timeout. It is 0
        after the timeout if only answers are missing.
    """
    waiting = sa.select(sa.func.count()).select_from(inbox).where(is_waiting(inbox))
    running = sa.select(sa.func.count()).select_from(turns).where(is_active(turns))
    deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
    while True:
        unfinished_work = 0
        for database in databases:
            async with database.read() as connection:
                unfinished_work += (await connection.execute(waiting)).scalar_one() + (
                    await connection.execute(running)
                ).scalar_one()
        is_done = not unfinished_work and all(session.has_answers(session.sent) for session in sessions)
        if is_done or time.monotonic() > deadline:
            return unfinished_work
        await asyncio.sleep(0.5)


async def find_accepted(database: Database) -> set[str]:
    """Return the names (`s3-14`) of the user messages in a database's inbox.

    Names are those in the texts: see `find_names`. Rows without a message, as after a reset, are left out.
    """
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(inbox.c.message))).scalars()
        return {name for row in rows if row is not None for name in find_names(str(row["text"]))}


async def find_turn_starts(database: Database) -> dict[str, float]:
    """Return the start of each message's turn (monotonic seconds), by message name.

    The turn is the last one that claimed the message. Messages without a turn are left out.
    """
    offset = time.monotonic() - time.time()
    turn_starts = sa.select(inbox.c.message, turns.c.created_at).join(turns, turns.c.id == inbox.c.turn)
    async with database.read() as connection:
        rows = (await connection.execute(turn_starts.where(inbox.c.message.is_not(None)))).all()
    return {name: row.created_at + offset for row in rows for name in find_names(str(row.message["text"]))}


def build_outcome(
    seed: int,
    seconds: float,
    sessions: Sequence[UserSession],
    platforms: Sequence[SoakPlatform],
    model: CheckingModel,
    accepted: Set[str],
    turn_starts: Mapping[str, float],
    *,
    unexpected_exits: int,
    unfinished_work: int,
    counts: Counter[str],
) -> Outcome:
    """Judge the visible messages of all sessions, and return the outcome.

    Args:
        accepted: names of the accepted messages; see `find_accepted`.
        turn_starts: see `find_turn_starts`.
    """
    verdicts = [
        (session, judge(session.sent, visible_text(session.place), count_unfinished(session.place)))
        for session in sessions
    ]
    lost = {name for _, verdict in verdicts for name in verdict.lost}
    pairs = [pair for _, verdict in verdicts for pair in verdict.out_of_order]
    receipt_times = {name: at for platform in platforms for name, at in platform.receipt_times().items()}
    in_time = {pair[0] for pair in pairs if not is_late(pair, receipt_times, turn_starts)}
    late = {older for older, _ in pairs} - in_time
    wrong = [order for order in model.orders if any(older not in late for older, _ in find_out_of_order(order))]
    return Outcome(
        seed,
        seconds,
        verdicts,
        frozenset(lost - accepted),
        frozenset(late),
        [*model.faults, *(f"order: {order}" for order in wrong)],
        unexpected_exits,
        unfinished_work,
        counts,
        sum(platform.count_bot_messages() for platform in platforms)
        - sum(len(session.place.list_bot_messages()) for session in sessions),
    )
