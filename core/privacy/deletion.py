"""Deleting what is stored: a conversation, what is older than a day, what a person has said
(`core.privacy.person_redaction`).

What runs of it is ended first, and may store nothing more; then it goes, in one transaction a conversation. Of a
message stays the key that its platform knows it by, for as long as the inbox keeps those: so that no second delivery
and no look at what was missed brings it back.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.privacy.deletion_queries import (
    bury,
    delete,
    forget_of,
    has_running,
    has_waiting,
    hold,
    kept_since,
    occupy,
)
from core.privacy.known_users import KnownUser, count_records, find_users
from core.privacy.person_redaction import Person, is_alone, person_in, redact, sessions_with
from core.sessions.lifecycle import begin_generation, delete_unreferenced_blobs
from core.store.database import Database
from core.store.notify import Notices
from core.store.schema import (
    artifacts,
    blobs,
    inbox,
    memories,
    messages,
    sessions,
    spending,
    tool_calls,
    turns,
    workers,
)
from core.turns.queries import is_active, is_waiting
from core.turns.store import RESET, STOP
from core.usage.meter import day_of
from core.usage.prices import Prices
from core.usage.spending import count_all, forget_people, forget_person

#: Seconds that is waited for what runs to come to its end, and between two looks.
PATIENCE = 15.0
LOOK = 0.1

#: Of how many conversations is counted at once what they hold: a statement takes no more than 32,767 values.
STEP = 500

#: How often that is done for a conversation in which a new turn has begun by then.
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be deleted: one of these.

    Attributes:
        session: a conversation.
        person: what somebody has said, by the id that his platform has for him.
        before: what is older, in seconds since the epoch.
    """

    session: str = ""
    person: str = ""
    before: float = 0.0


@dataclass(frozen=True, slots=True)
class Survey:
    """The stored data that a request is about.

    Attributes:
        whole: the conversations to delete.
        parts: the conversations to delete a part of.
        messages: the number of stored messages in all of these.
        files: the number of stored files in all of these.
        records: the rows about a person outside of conversations, such as spending and feedback.
    """

    whole: tuple[str, ...]
    parts: tuple[str, ...]
    messages: int
    files: int
    records: int = 0

    def __bool__(self) -> bool:
        return bool(self.whole or self.parts or self.records)


@dataclass(slots=True)
class Deleted:
    """The outcome of a deletion, counted in the transactions that made it.

    Attributes:
        conversations: how many were deleted whole.
        changed: how many lost a part.
        messages: how many messages were deleted.
        redacted: how many messages stay without the person.
        files: how many files were deleted.
        records: how many rows about the person outside of conversations no longer name them.
    """

    conversations: int = 0
    changed: int = 0
    messages: int = 0
    redacted: int = 0
    files: int = 0
    records: int = 0


class Forgetting:
    """Deletes. What was spent is counted first, and stays, as nobody's.

    Args:
        prices: what models cost.
    """

    def __init__(self, database: Database, prices: Prices) -> None:
        self._database = database
        self._prices = prices
        self._notices = Notices(database)
        self._deleted = Deleted()

    async def survey(self, wish: Wish) -> Survey:
        """Return the stored data that a request is about.

        Raises:
            StoreError: the database cannot be read.
        """
        whole, parts = await self.meant(wish)
        both, said, files = [*whole, *parts], 0, 0
        async with self._database.read() as connection:
            for start in range(0, len(both), STEP):
                some = both[start : start + STEP]
                said += await _count(connection, messages, some)
                files += await _count_files(connection, some)
            records = await count_records(connection, wish.person) if wish.person else 0
        return Survey(tuple(whole), tuple(parts), said, files, records)

    async def find_users(self, text: str) -> list[KnownUser]:
        """Return the users of whom something is stored and whose name contains `text`.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await find_users(connection, text)

    async def meant(self, wish: Wish) -> tuple[list[str], list[str]]:
        """The conversations that a wish takes whole, and in part.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            return await _meant(connection, wish)

    async def forget(self, wish: Wish) -> Deleted:
        """Delete what a request is about.

        Raises:
            StoreError: not all of it could be deleted; the same request deletes the rest.
        """
        self._deleted = done = Deleted()
        survey = await self.survey(wish)
        for session in survey.whole:
            if wish.person:
                if not await self.session(session, of=wish.person):  # somebody else speaks there now
                    await self._redact(session, wish.person)
            elif not wish.before:
                await self.session(session)
            elif not await self.old(session, wish.before):  # somebody speaks there again
                await self.trim(session, wish.before)
        for session in survey.parts:
            if wish.person:
                await self._redact(session, wish.person)
            else:
                await self.trim(session, wish.before)
        if wish.person:
            async with self._database.write() as connection:
                await forget_person(connection, self._prices, wish.person)
                await forget_of(connection, Person(wish.person))
            done.records = survey.records
        if wish.before:
            await self.spent(wish.before)
        return done

    @asynccontextmanager
    async def _counted(self, session_id: str) -> AsyncIterator[AsyncConnection]:
        """Lock a session for a transaction, and count the messages and files that it deletes there."""
        async with self._database.write() as connection:
            await hold(connection, session_id)
            stored = [await _count(connection, messages, [session_id]), await _count_files(connection, [session_id])]
            yield connection
            left = [await _count(connection, messages, [session_id]), await _count_files(connection, [session_id])]
        self._deleted.messages += stored[0] - left[0]
        self._deleted.files += stored[1] - left[1]

    async def spent(self, before: float) -> None:
        """Keep what was spent on days that are over by then as nobody's."""
        async with self._database.write() as connection:
            await forget_people(connection, spending.c.day < day_of(before))

    async def session(self, session_id: str, *, of: str = "") -> bool:
        """Delete a conversation whole. What is said in it while what runs comes to its end is answered in one that
        begins anew.

        Args:
            of: only if nobody else than this person has spoken there.

        Returns:
            Whether it was done.
        """
        began, here = time.time(), turns.c.session == session_id
        async with self._counted(session_id) as connection:
            row = await occupy(connection, session_id)
            if of and row is not None and not await is_alone(connection, session_id, of):
                return False
            if row is None or not await has_running(connection, session_id):
                await delete(connection, self._prices, session_id, row, said_by=began)
                self._deleted.conversations += 1
                return True
            ended = await self._end_turns(connection, here, RESET)
            waiting = (inbox.c.session == session_id) & is_waiting(inbox)
            await connection.execute(sa.update(inbox).where(waiting).values(outcome="dropped"))
            generation = await begin_generation(connection, session_id)
            await connection.execute(sa.delete(artifacts).where(artifacts.c.session == session_id))
        await self._rest(session_id, turns.c.id.in_(ended))
        async with self._counted(session_id) as connection:
            row = await hold(connection, session_id)
            if row is not None and generation is not None and row.generation >= generation:  # else it is another one
                await delete(connection, self._prices, session_id, row, said_by=began, before=generation)
        self._deleted.conversations += 1
        return True

    async def old(self, session_id: str, before: float) -> bool:
        """Delete a conversation whole in which nothing was said since, if nothing is to be answered there.

        Returns:
            Whether it was done.
        """
        async with self._counted(session_id) as connection:
            row = await hold(connection, session_id)
            is_old = sa.select(_is_old(before)).where(sessions.c.id == session_id)
            if not await connection.scalar(is_old) or await has_running(connection, session_id):
                return False
            if await has_waiting(connection, session_id):
                return False
            await delete(connection, self._prices, session_id, row, said_by=before)
        self._deleted.conversations += 1
        return True

    async def trim(self, session_id: str, before: float, *, waits: bool = True) -> bool:
        """Delete of a conversation what is older, in whole turns. A turn stays that waits for a person's decision.

        Args:
            waits: whether what runs there is waited for; else nothing is done then.

        Returns:
            Whether it was done.
        """
        if waits:
            await self._rest(session_id)
        async with self._counted(session_id) as connection:
            if await hold(connection, session_id) is None or (not waits and await has_running(connection, session_id)):
                return False
            await count_all(connection, self._prices, turns.c.session == session_id)
            kept = await kept_since(connection, session_id, before)
            here = messages.c.session == session_id
            old = here & (messages.c.created_at < before) & messages.c.invocation_id.not_in(kept)
            gone = await connection.execute(sa.delete(messages).where(old, messages.c.covers.is_(None)))
            summed_up = here & messages.c.covers.is_not(None)
            if not gone.rowcount:  # those that tell of nothing that is gone stay
                summed_up &= messages.c.created_at < before
            await connection.execute(sa.delete(messages).where(summed_up))
            remembered = (memories.c.session == session_id) & (memories.c.created_at < before)
            await connection.execute(sa.delete(memories).where(remembered))
            calls = (tool_calls.c.session == session_id) & (tool_calls.c.begun_at < before)
            await connection.execute(sa.delete(tool_calls).where(calls, tool_calls.c.run.not_in(kept)))
            made = (artifacts.c.session == session_id) & (artifacts.c.created_at < before)
            run = sa.func.coalesce(artifacts.c.run, "")
            await connection.execute(sa.delete(artifacts).where(made, run.not_in(kept)))
            ended = (turns.c.session == session_id) & (turns.c.finished_at < before) & turns.c.origin.not_in(kept)
            await connection.execute(sa.delete(turns).where(ended, turns.c.id.not_in(kept)))
            answered = sa.exists().where(turns.c.session == session_id, turns.c.origin == inbox.c.turn)
            said = (inbox.c.session == session_id) & (inbox.c.sent_at < before) & ~is_waiting(inbox) & ~answered
            await bury(connection, said)
            if gone.rowcount:  # what is being summed up is there no more
                await connection.execute(sa.update(sessions).where(sessions.c.id == session_id).values(folder=None))
            await delete_unreferenced_blobs(connection, session_id)
        self._deleted.changed += 1
        return True

    async def _redact(self, session_id: str, person: str) -> None:
        """Redact a person in a conversation while no turn runs there that has read their messages."""
        for left in reversed(range(ROUNDS)):
            await self._end(session_id, person if left == ROUNDS - 1 else None)  # what they say since is answered
            async with self._counted(session_id) as connection:
                if left and await has_running(connection, session_id):  # it was begun meanwhile
                    continue
                await forget_person(connection, self._prices, person)
                redacted = await redact(connection, session_id, await person_in(connection, session_id, person))
                await delete_unreferenced_blobs(connection, session_id)
                await connection.execute(sa.delete(memories).where(memories.c.session == session_id))
            self._deleted.redacted += redacted
            self._deleted.changed += 1
            return

    async def _end(self, session_id: str, person: str | None) -> None:
        """End what runs in a session, and what a person has said that waits there, if one is meant."""
        async with self._database.write() as connection:
            await hold(connection, session_id)
            ended = await self._end_turns(connection, turns.c.session == session_id, STOP)
            waiting = (inbox.c.session == session_id) & is_waiting(inbox)
            await bury(connection, waiting & (inbox.c.author == person))
        await self._rest(session_id, turns.c.id.in_(ended))

    async def _end_turns(self, connection: AsyncConnection, here: sa.ColumnElement[bool], reason: str) -> Sequence[str]:
        """Have turns ended that are under way; which ones."""
        why = reason if reason == RESET else sa.func.coalesce(turns.c.cancel, reason)  # what is to be forgotten is
        asked = sa.update(turns).where(here, is_active(turns)).values(cancel=why).returning(turns.c.id)
        ended: Sequence[str] = (await connection.execute(asked)).scalars().all()
        for turn in ended:
            await self._notices.post(connection, f"{turn} {reason}")
        return ended

    async def _rest(self, session_id: str, which: sa.ColumnElement[bool] = sa.true()) -> None:  # noqa: B008 - a constant
        """Wait until nothing of it is under way there any more, or nobody is there who could end it: who takes up what
        another one has left leaves no placeholder of it.
        """
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            async with self._database.read() as connection:
                is_served = sa.exists().where(workers.c.lease > self._database.now)
                here = (turns.c.session == session_id) & which & is_active(turns) & is_served
                if (await connection.execute(sa.select(turns.c.id).where(here))).first() is None:
                    return
            await asyncio.sleep(LOOK)


async def wipe(database: Database) -> None:
    """Have nothing left in the files of the database of what was deleted. PostgreSQL does so by itself, in time.

    Raises:
        StoreError: SQLite cannot do it now, since somebody reads: it may be done again.
    """
    if database.is_sqlite:
        async with database.read() as connection:
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                await connection.exec_driver_sql(statement)


async def _count(connection: AsyncConnection, table: sa.Table, of: Sequence[str]) -> int:
    """How many rows of a table are of these sessions."""
    return await connection.scalar(sa.select(sa.func.count()).where(table.c.session.in_(of))) or 0


async def _count_files(connection: AsyncConnection, of: Sequence[str]) -> int:
    return await _count(connection, blobs, of) + await _count(connection, artifacts, of)


async def _meant(connection: AsyncConnection, wish: Wish) -> tuple[list[str], list[str]]:
    """The sessions that go whole, and in part."""
    if wish.session:
        tables = (sessions.c.id, messages.c.session, inbox.c.session, turns.c.session)
        there = [sa.select(column).where(column == wish.session).limit(1) for column in tables]
        there[2] = there[2].where(inbox.c.event_key.not_like("forgotten:%"))  # the mark of an earlier deletion
        found = [(await connection.execute(query)).first() for query in there]
        return ([wish.session] if any(found) else []), []
    if wish.person:
        return await sessions_with(connection, wish.person)
    oldest = sa.select(sa.func.min(messages.c.created_at)).where(messages.c.session == sessions.c.id).scalar_subquery()
    is_whole = _is_old(wish.before)
    query = sa.select(sessions.c.id, is_whole).where(is_whole | (oldest < wish.before)).order_by(sessions.c.id)
    rows = (await connection.execute(query)).all()
    return [id_ for id_, whole in rows if whole], [id_ for id_, whole in rows if not whole]


def _is_old(before: float) -> sa.ColumnElement[bool]:
    """Whether nothing was said in a session since."""
    newest = sa.select(sa.func.max(messages.c.created_at)).where(messages.c.session == sessions.c.id).scalar_subquery()
    heard = sa.select(sa.func.max(inbox.c.sent_at)).where(inbox.c.session == sessions.c.id).scalar_subquery()
    young = (sa.func.coalesce(newest, 0.0) >= before) | (sa.func.coalesce(heard, 0.0) >= before)
    return ~young & (sessions.c.updated_at < before)
