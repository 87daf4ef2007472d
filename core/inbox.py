"""The inbox: what was said to the bot, kept before the platform hears that it was received."""

import time

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.inbound import Inbound
from core.sessions.service import SessionService, ensure_session
from core.store.database import Database
from core.store.schema import inbox, sessions, turns
from core.worker import RESET, Worker


class Inbox:
    """The `inbox` table: each message once, whatever path and however often it comes."""

    def __init__(self, database: Database, service: SessionService, worker: Worker, *, app: str) -> None:
        self._database = database
        self._service = service
        self._worker = worker
        self._app = app

    async def accept(self, inbound: Inbound) -> bool:
        """Keep a message that asks for an answer.

        Returns:
            Whether it is new; a second delivery changes nothing.

        Raises:
            StoreError: it could not be kept, so the platform must not be told that it was received.
        """
        try:
            async with self._database.write() as connection:
                is_new = await self._keep(connection, inbound)
        except IntegrityError:  # two deliveries at the same moment: the other one was quicker
            return False
        self._worker.wake()
        return is_new

    async def reset(self, inbound: Inbound) -> list[Inbound] | None:
        """Keep a message that starts its session over, and do so: what is stored of the session goes, what
        waits is not answered, and what still runs can store nothing more.

        Returns:
            What waited and will not be answered; nothing at all if the message was here before.

        Raises:
            StoreError: nothing was changed.
        """
        try:
            async with self._database.write() as connection:
                if not await self._keep(connection, inbound, outcome="reset"):
                    return None
                dropped = await self._start_over(connection, inbound.session_id)
        except IntegrityError:
            return None
        self._worker.cancel(inbound.session_id, RESET)
        return dropped

    def is_busy(self, session_id: str) -> bool:
        """Whether a turn of this session runs, so that what comes now waits."""
        return self._worker.is_busy(session_id)

    async def is_session(self, session_id: str) -> bool:
        """Whether the bot already speaks in this session."""
        query = sa.select(sessions.c.id).where(sessions.c.id == session_id)
        async with self._database.read() as connection:
            return (await connection.execute(query)).first() is not None

    async def latest_session(self, *, place: str, author: str) -> str | None:
        """The session at `place` in which `author` spoke last."""
        query = (
            sa.select(inbox.c.session)
            .where(inbox.c.place == place, inbox.c.author == author)
            .order_by(inbox.c.sent_at.desc())
            .limit(1)
        )
        async with self._database.read() as connection:
            return (await connection.execute(query)).scalar_one_or_none()

    async def _keep(self, connection: AsyncConnection, inbound: Inbound, *, outcome: str | None = None) -> bool:
        seen = sa.select(inbox.c.id).where(inbox.c.event_key == inbound.event_key)
        if (await connection.execute(seen)).first() is not None:
            return False
        generation = await ensure_session(
            connection, app=self._app, user_id=inbound.place, session_id=inbound.session_id
        )
        await connection.execute(
            sa.insert(inbox).values(
                event_key=inbound.event_key,
                session=inbound.session_id,
                generation=generation,
                place=inbound.place,
                author=inbound.author,
                inbound=inbound.to_json(),
                sent_at=inbound.sent_at,
                accepted_at=time.time(),
                outcome=outcome,
            )
        )
        return True

    async def _start_over(self, connection: AsyncConnection, session_id: str) -> list[Inbound]:
        await self._service.begin_generation(connection, session_id)
        here = inbox.c.session == session_id
        waiting = here & inbox.c.turn.is_(None) & inbox.c.outcome.is_(None)
        dropped = (await connection.execute(sa.select(inbox.c.inbound).where(waiting))).scalars().all()
        await connection.execute(sa.update(inbox).where(waiting).values(outcome="reset"))
        await connection.execute(sa.update(inbox).where(here, inbox.c.outcome.is_not(None)).values(inbound=None))
        await connection.execute(
            sa.update(turns).where(turns.c.session == session_id, turns.c.finished_at.is_not(None)).values(text=None)
        )
        return [Inbound.from_json(inbound) for inbound in dropped]
