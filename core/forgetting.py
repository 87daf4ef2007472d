"""Deleting what is stored: a conversation, what is older than a day, what a person has said (`core.redaction`).

What runs of it is ended first, and may store nothing more; then it goes, in one transaction a conversation. Of a
message stays the key that its platform knows it by, for as long as the inbox keeps those: so that no second delivery
and no look at what was missed brings it back.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.metering import day_of
from core.prices import Prices
from core.redaction import Person, person_in, redact, sessions_with
from core.sessions import scopes
from core.sessions.record import parsed, references
from core.sessions.reopening import correction_of
from core.spending import count_all, forget_people, forget_person, is_of
from core.store.database import Database
from core.store.notices import Notices
from core.store.schema import (
    approvals,
    artifacts,
    blobs,
    feedback,
    inbox,
    memories,
    messages,
    refusals,
    sessions,
    spending,
    state,
    tool_calls,
    turns,
    workers,
)
from core.turns import RESET, STOP
from core.waiting import is_under_way, is_waiting

#: Seconds that is waited for what runs to come to its end, and between two looks.
PATIENCE = 15.0
LOOK = 0.1

#: How often that is done for a conversation in which a new turn has begun by then.
ROUNDS = 5

#: What the inbox says of a message of which it keeps nothing but the key.
FORGOTTEN = "forgotten"


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
    """What a wish takes.

    Attributes:
        whole: the conversations that go.
        parts: those of which a part goes.
        messages: how many stored messages are in all of these, and how many `files`.
    """

    whole: tuple[str, ...]
    parts: tuple[str, ...]
    messages: int
    files: int

    def __bool__(self) -> bool:
        return bool(self.whole or self.parts)


class Forgetting:
    """Deletes. What was spent is counted first, and stays, as nobody's.

    Args:
        prices: what models cost.
    """

    def __init__(self, database: Database, prices: Prices) -> None:
        self._database = database
        self._prices = prices
        self._notices = Notices(database)

    async def survey(self, wish: Wish) -> Survey:
        """What there is that a wish takes.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            whole, parts = await _meant(connection, wish)
            both = [*whole, *parts]
            counted = sa.select(sa.func.count()).select_from(messages).where(messages.c.session.in_(both))
            of_blobs = sa.select(sa.func.count()).select_from(blobs).where(blobs.c.session.in_(both))
            made = sa.select(sa.func.count()).select_from(artifacts).where(artifacts.c.session.in_(both))
            said = (await connection.execute(counted)).scalar_one()
            files = [(await connection.execute(query)).scalar_one() for query in (of_blobs, made)]
        return Survey(tuple(whole), tuple(parts), said, sum(files))

    async def forget(self, wish: Wish) -> Survey:
        """Delete it.

        Returns:
            What it was.

        Raises:
            StoreError: not all of it could be deleted; what is left can be deleted by the same wish.
        """
        survey = await self.survey(wish)
        for session in survey.whole:
            await self.session(session)
        for session in survey.parts:
            if wish.person:
                await self._redact(session, wish.person)
            else:
                await self.trim(session, wish.before)
        if wish.person:
            async with self._database.write() as connection:
                await forget_person(connection, self._prices, wish.person)
                await _forget_person(connection, Person(wish.person))
        if wish.before:
            await self.spent(wish.before)
        return survey

    async def spent(self, before: float) -> None:
        """Keep what was spent on days that are over by then as nobody's."""
        async with self._database.write() as connection:
            await forget_people(connection, spending.c.day < day_of(before))

    async def session(self, session_id: str) -> None:
        """Delete a conversation whole."""
        await self._end(session_id, RESET)
        async with self._database.write() as connection:
            row = await _hold(connection, session_id)
            here = turns.c.session == session_id
            await connection.execute(
                sa.update(turns).where(here, turns.c.finished_at.is_(None)).values(finished_at=time.time())
            )
            await count_all(connection, self._prices, here)
            its_turns = sa.select(turns.c.id).where(turns.c.session == session_id)
            of_session = (artifacts.c.session == session_id) | (
                (artifacts.c.scope == "session") & (artifacts.c.owner == session_id)
            )
            await connection.execute(sa.delete(feedback).where(feedback.c.turn.in_(its_turns)))
            for table in (approvals, messages, memories, blobs, tool_calls, turns):
                await connection.execute(sa.delete(table).where(table.c.session == session_id))
            await connection.execute(sa.delete(artifacts).where(of_session))
            own = (state.c.scope == "session") & (state.c.owner == session_id)
            await connection.execute(sa.delete(state).where(own))
            await _bury(connection, inbox.c.session == session_id)
            await connection.execute(sa.delete(sessions).where(sessions.c.id == session_id))
            if row is not None:
                await _leave(connection, row)

    async def trim(self, session_id: str, before: float, *, waits: bool = True) -> bool:
        """Delete of a conversation what is older, in whole turns. A turn stays that waits for a person's decision.

        Args:
            waits: whether what runs there is waited for; else nothing is done then.

        Returns:
            Whether it was done.
        """
        if waits:
            await self._rest(session_id)
        async with self._database.write() as connection:
            if await _hold(connection, session_id) is None or (not waits and await _runs(connection, session_id)):
                return False
            await count_all(connection, self._prices, turns.c.session == session_id)
            kept = await _kept_since(connection, session_id, before)
            here = messages.c.session == session_id
            old = here & (messages.c.created_at < before) & messages.c.invocation_id.not_in(kept)
            await connection.execute(sa.delete(messages).where(old, messages.c.covers.is_(None)))
            await connection.execute(sa.delete(messages).where(here, messages.c.covers.is_not(None)))
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
            await _bury(connection, said)
            await connection.execute(sa.update(sessions).where(sessions.c.id == session_id).values(folder=None))
            await _drop_unused(connection, session_id)
        return True

    async def _redact(self, session_id: str, person: str) -> None:
        """Take a person out of a conversation while nothing runs there that has read what he said."""
        for left in reversed(range(ROUNDS)):
            await self._end(session_id, STOP, person)
            async with self._database.write() as connection:
                await _hold(connection, session_id)
                if left and await _runs(connection, session_id):  # it was begun meanwhile
                    continue
                await forget_person(connection, self._prices, person)
                await redact(connection, session_id, await person_in(connection, session_id, person))
                await _drop_unused(connection, session_id)
                await connection.execute(sa.delete(memories).where(memories.c.session == session_id))
                return

    async def _end(self, session_id: str, reason: str, person: str = "") -> None:
        """End what runs in a session, and what waits there: of a person, if one is given; else all, in a reset."""
        async with self._database.write() as connection:
            await _hold(connection, session_id)
            if reason == RESET:  # whatever still runs belongs to a generation that is over
                next_one = sa.update(sessions).where(sessions.c.id == session_id)
                await connection.execute(next_one.values(generation=sessions.c.generation + 1))
            here = (turns.c.session == session_id) & is_under_way(turns)
            why = reason if reason == RESET else sa.func.coalesce(turns.c.cancel, reason)  # what is to be forgotten is
            asked = sa.update(turns).where(here).values(cancel=why).returning(turns.c.id)
            ended = (await connection.execute(asked)).scalars().all()
            for turn in ended:
                await self._notices.post(connection, f"{turn} {reason}")
            waiting = (inbox.c.session == session_id) & is_waiting(inbox)
            if reason == RESET:
                await connection.execute(sa.update(inbox).where(waiting).values(outcome="dropped"))
            elif person:
                await _bury(connection, waiting & (inbox.c.author == person))
        await self._rest(session_id, turns.c.id.in_(ended))

    async def _rest(self, session_id: str, which: sa.ColumnElement[bool] = sa.true()) -> None:  # noqa: B008 - a constant
        """Wait until nothing of it runs there any more, or nobody is there who could end it."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            async with self._database.read() as connection:
                at_work = sa.select(workers.c.id).where(workers.c.lease > self._database.now)
                here = (turns.c.session == session_id) & which & is_under_way(turns) & turns.c.owner.in_(at_work)
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


async def _meant(connection: AsyncConnection, wish: Wish) -> tuple[list[str], list[str]]:
    """The sessions that go whole, and in part."""
    if wish.session:
        tables = (sessions.c.id, messages.c.session, inbox.c.session, turns.c.session)
        there = [sa.select(column).where(column == wish.session).limit(1) for column in tables]
        found = [(await connection.execute(query)).first() for query in there]
        return ([wish.session] if any(found) else []), []
    if wish.person:
        return await sessions_with(connection, wish.person)
    newest = sa.select(sa.func.max(messages.c.created_at)).where(messages.c.session == sessions.c.id).scalar_subquery()
    heard = sa.select(sa.func.max(inbox.c.sent_at)).where(inbox.c.session == sessions.c.id).scalar_subquery()
    oldest = sa.select(sa.func.min(messages.c.created_at)).where(messages.c.session == sessions.c.id).scalar_subquery()
    young = (sa.func.coalesce(newest, 0.0) >= wish.before) | (sa.func.coalesce(heard, 0.0) >= wish.before)
    is_whole = ~young & (sessions.c.updated_at < wish.before)
    query = sa.select(sessions.c.id, is_whole).where(is_whole | (oldest < wish.before)).order_by(sessions.c.id)
    rows = (await connection.execute(query)).all()
    return [id_ for id_, whole in rows if whole], [id_ for id_, whole in rows if not whole]


async def _hold(connection: AsyncConnection, session_id: str) -> sa.Row[Any] | None:
    """Keep a session from all others until the end of the transaction, if it is there."""
    query = sa.select(sessions.c.id, sessions.c.user_id).where(sessions.c.id == session_id)
    held: Any = await connection.execute(query.with_for_update())
    row: sa.Row[Any] | None = held.one_or_none()
    return row


async def _runs(connection: AsyncConnection, session_id: str) -> bool:
    query = sa.select(turns.c.id).where(turns.c.session == session_id, is_under_way(turns))
    return (await connection.execute(query)).first() is not None


async def _bury(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> None:
    """Keep nothing of messages but their keys."""
    nothing = {"session": "", "place": "", "author": "", "inbound": None, "revised": None, "parent": None, "turn": None}
    await connection.execute(sa.update(inbox).where(which).values(**nothing, outcome=FORGOTTEN))


async def _leave(connection: AsyncConnection, session: sa.Row[Any]) -> None:
    """Remember that what was said there before is not to be read again; of a place without any conversation, forget
    what tools have kept for it, and who has spent what there.
    """
    now = time.time()
    mark = {"session": session.id, "place": session.user_id, "author": "", "generation": 1, "outcome": "reset"}
    mark |= {"event_key": f"forgotten:{session.id}:{now}", "sent_at": now, "accepted_at": now}
    await connection.execute(sa.insert(inbox).values(mark))
    others = sa.select(sessions.c.id).where(sessions.c.user_id == session.user_id)
    if (await connection.execute(others.limit(1))).first() is None:
        await connection.execute(sa.delete(memories).where(memories.c.user_id == session.user_id))
        await forget_people(connection, spending.c.place == session.user_id)
        for table in (state, artifacts):
            of_place = (table.c.scope == "user") & scopes.is_of(table.c.owner, session.user_id)
            await connection.execute(sa.delete(table).where(of_place))


async def _kept_since(connection: AsyncConnection, session_id: str, before: float) -> Sequence[str]:
    """The runs that have begun before and gone on since, and those that wait for a decision."""
    c = messages.c
    waits = c.held.is_not(None) & c.covers.is_(None)
    found = list[set[str]]()
    for which in (c.created_at < before, c.created_at >= before, waits):
        query = sa.select(c.invocation_id).where(c.session == session_id, which).distinct()
        found.append({run.removesuffix(correction_of("")) for run in (await connection.execute(query)).scalars()})
    old, young, waiting = found
    runs = (old & young) | waiting
    return [*runs, *map(correction_of, runs)]


async def _drop_unused(connection: AsyncConnection, session_id: str) -> None:
    """Delete the bytes that no message of a session refers to any more."""
    held = sa.select(blobs.c.hash).where(blobs.c.session == session_id)
    unused = set((await connection.execute(held)).scalars())
    if not unused:
        return
    query = sa.select(messages.c.id, messages.c.event).where(messages.c.session == session_id)
    for id_, event in await connection.execute(query.where(messages.c.event.contains('"data"'))):
        if (read := parsed(event, id_)) is not None:
            unused -= references(read)
    await connection.execute(sa.delete(blobs).where(blobs.c.session == session_id, blobs.c.hash.in_(unused)))


async def _forget_person(connection: AsyncConnection, person: Person) -> None:
    """What is kept of a person beside conversations."""
    await connection.execute(sa.delete(feedback).where(feedback.c.author == person.id))
    decided = sa.update(approvals).where(approvals.c.decided_by == person.id)
    await connection.execute(decided.values(decided_by=None, decider=None))
    await connection.execute(sa.delete(refusals).where(is_of(refusals.c.person, person.id)))
    await _bury(connection, inbox.c.author == person.id)
