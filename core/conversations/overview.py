"""Overview of workers, running turns, sessions and platforms, for operators."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.conversations.turn_report import TurnReport, load_reports
from core.store.database import Database
from core.store.schema import human_requests, inbox, platforms, sessions, turns, workers
from core.turns.queries import is_active, is_message, is_waiting
from core.usage.prices import Prices

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class WorkerOverview:
    """State of a worker process.

    Attributes:
        lease_seconds: seconds until the worker's lease ends, negative after that; None on SQLite: its leases do not
            end.
        turns: the number of active turns that the worker owns.
    """

    id: str
    lease_seconds: float | None
    turns: int


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """State of a session: counts of its messages, its model, and its active turn.

    Attributes:
        people: the number of different authors of the session's rows in the inbox, bots too.
        messages: the number of these rows, of all generations.
        model: the full name of the chosen model; None for the default.
        is_muted: whether only mentions are answered.
        running: the id of the active turn.
        queued: the number of messages that wait for a turn.
    """

    id: str
    generation: int
    last_message_at: float
    people: int
    messages: int
    model: str | None
    is_muted: bool
    running: str | None
    queued: int


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """Counts and ages of the messages that wait for a turn; an age is 0 if none waits.

    Attributes:
        sessions: the number of sessions in which they wait.
        claimable_seconds: the age of the oldest waiting message in a session without an active turn, which a worker
            could claim.
    """

    messages: int = 0
    sessions: int = 0
    oldest_seconds: float = 0.0
    claimable_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PlatformOverview:
    """State of a platform's adapter, or of one of its gateway shards.

    Attributes:
        name: the name of the adapter or shard, such as `slack` or `discord:0/2`.
        leader: the id of the worker that is connected; None if none is, or if several may be connected.
        watermark_age_seconds: the age of the watermark: all older messages are stored.
    """

    name: str
    leader: str | None
    watermark_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed turns with the same cause: the beginning of their error, usually its class; `unknown` without one."""

    cause: str
    count: int
    newest: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Workers, turns, queue, platforms and failures at one moment, by the database's clock.

    Attributes:
        running: reports of the active turns, the newest first.
        undecided: the number of requests that wait for people.
        platforms: the adapters and their shards, by name.
        failures: the failed turns of the last hour by cause, the most frequent cause first.
    """

    at: float
    workers: tuple[WorkerOverview, ...]
    running: tuple[TurnReport, ...]
    queue: QueueOverview
    undecided: int
    platforms: tuple[PlatformOverview, ...]
    failures: tuple[FailureGroup, ...]


async def get_overview(database: Database, prices: Prices) -> Overview:
    """Return workers, active turns, queue, platforms, and failures of the last hour."""
    async with database.read() as connection:
        now = float((await connection.execute(sa.select(database.now))).scalar_one())
        undecided = sa.select(sa.func.count()).where(human_requests.c.decision.is_(None))
        running = sa.select(turns).where(is_active(turns)).order_by(turns.c.created_at.desc())
        return Overview(
            at=now,
            workers=await _list_workers(connection, now, ends=not database.is_sqlite),
            running=tuple(await load_reports(connection, (await connection.execute(running)).all(), prices)),
            queue=await _get_queue(connection, now),
            undecided=(await connection.execute(undecided)).scalar_one(),
            platforms=await _list_platforms(connection, now),
            failures=await _group_failures(connection, now - HOUR_SECONDS),
        )


async def get_queue_overview(database: Database) -> QueueOverview:
    async with database.read() as connection:
        return await _get_queue(connection, float((await connection.execute(sa.select(database.now))).scalar_one()))


async def list_sessions(
    database: Database, *, limit: int, beginning: str = "", author: str | None = None
) -> tuple[SessionOverview, ...]:
    """Return at most `limit` sessions, those with the newest messages first.

    Sessions without rows in the inbox are left out. `beginning` is that of a session's id, and `author` the platform's
    id of a person who wrote there.
    """
    last_message_at = sa.func.max(inbox.c.sent_at).label("last_message_at")
    people = sa.func.count(inbox.c.author.distinct()).label("people")
    waits = sa.func.count(sa.case((is_waiting(inbox), 1))).label("queued")
    by_session = sa.select(inbox.c.session, last_message_at, people, sa.func.count().label("messages"), waits)
    written = inbox.c.session.startswith(beginning, autoescape=True) & is_message(inbox)
    by_session = by_session.where(written).group_by(inbox.c.session)
    if author is not None:
        by_session = by_session.having(sa.func.count(sa.case((inbox.c.author == author, 1))) > 0)
    newest = by_session.order_by(sa.desc("last_message_at")).limit(limit).subquery("newest")
    running = sa.select(turns.c.id).where(turns.c.session == sessions.c.id, is_active(turns)).scalar_subquery()
    query = (
        sa.select(
            *(sessions.c.id, sessions.c.generation, sessions.c.model, sessions.c.is_muted),
            *(newest.c.last_message_at, newest.c.people, newest.c.messages, newest.c.queued, running.label("running")),
        )
        .join(newest, newest.c.session == sessions.c.id)
        .order_by(newest.c.last_message_at.desc())
    )
    async with database.read() as connection:
        return tuple(SessionOverview(**row) for row in (await connection.execute(query)).mappings())


async def _list_workers(connection: AsyncConnection, now: float, *, ends: bool) -> tuple[WorkerOverview, ...]:
    own = sa.select(sa.func.count()).where(turns.c.owner == workers.c.id, is_active(turns)).scalar_subquery()
    rows = (
        await connection.execute(sa.select(workers.c.id, workers.c.lease_expires_at, own).order_by(workers.c.id))
    ).all()
    return tuple(WorkerOverview(id_, lease - now if ends else None, count) for id_, lease, count in rows)


async def _get_queue(connection: AsyncConnection, now: float) -> QueueOverview:
    busy = sa.exists().where(turns.c.session == inbox.c.session, is_active(turns))
    query = sa.select(
        sa.func.count(),
        sa.func.count(inbox.c.session.distinct()),
        sa.func.min(inbox.c.accepted_at),
        sa.func.min(sa.case((~busy, inbox.c.accepted_at))),
    ).where(is_waiting(inbox))
    count, session_count, oldest, claimable = (await connection.execute(query)).one()
    return QueueOverview(count, session_count, now - oldest if oldest else 0.0, now - claimable if claimable else 0.0)


async def _list_platforms(connection: AsyncConnection, now: float) -> tuple[PlatformOverview, ...]:
    rows = (await connection.execute(sa.select(platforms).order_by(platforms.c.name))).all()
    return tuple(
        PlatformOverview(row.name, row.owner, None if row.watermark is None else now - row.watermark) for row in rows
    )


async def _group_failures(connection: AsyncConnection, since: float) -> tuple[FailureGroup, ...]:
    failed = sa.select(turns.c.id, turns.c.error).where(turns.c.state == "failed", turns.c.finished_at >= since)
    rows = (await connection.execute(failed.order_by(turns.c.finished_at.desc()))).all()
    found: dict[str, list[str]] = {}
    for id_, error in rows:
        found.setdefault((error or "unknown").partition(":")[0], []).append(id_)
    by_count = sorted(found.items(), key=lambda item: -len(item[1]))
    return tuple(FailureGroup(cause, len(ids), ids[0]) for cause, ids in by_count)
