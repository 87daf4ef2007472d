"""Reads a session newest first, until the token budget is full: the length of the history costs nothing.

One statement returns the session, its state and its newest messages, all of the same moment. Only longer turns and open
calls take further statements.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import sqlalchemy as sa
from google.adk.events.event import Event

from core.identity import FALLBACK_AUTHOR, current_author
from core.sessions import state as scopes
from core.sessions.codec import NEWEST_FIRST, OLDEST_FIRST, of_session, parsed, references, restored
from core.sessions.history import (
    DEFAULT_BUDGET_TOKENS,
    DEFAULT_MAX_TURNS,
    HistoryEntry,
    HistoryWindow,
    count_sent_turns,
    describe_window,
    repair_history,
    token_budget_truncate,
)
from core.sessions.legacy import Rebuilder
from core.sessions.summarizer import shown
from core.store.database import Database
from core.store.fast_path import Statement
from core.store.schema import IS_USER_MESSAGE, blobs, messages, sessions, state

#: Rows of one read: as many turns of a question and an answer as are sent by default, and some more.
BATCH = 2 * DEFAULT_MAX_TURNS + 8

#: The most rows that are looked at for calls that wait and for compactions, newest first.
HELD = 64


class Message(NamedTuple):
    """What of a row of `messages` is always needed.

    Attributes:
        waits: whether it holds calls that wait.
        covers: of a summary, the last message that it tells of; else 0.
    """

    id: int
    role: str
    event: str | None
    tokens: int
    waits: bool
    created_at: float
    covers: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """A session as it is in one moment.

    Attributes:
        newest: its newest messages, at most `BATCH`, by their ids.
        held: its messages that are not cut away, the newest `HELD` of them.
    """

    generation: int
    created_at: float
    updated_at: float
    state: Mapping[str, Any]
    newest: Mapping[int, Message]
    held: Mapping[int, Message]


class _Part(IntEnum):
    """What a row of `_OPENING` is about."""

    LIFE = 0
    STATE = 1
    NEWEST = 2
    HELD = 3


async def opened(
    database: Database, *, app: str, user_id: str, session_id: str, home: str | None = None
) -> Opened | None:
    """A session of that app and user, if there is one, with that app's state.

    Args:
        home: the app whose the session is, if it is another's.

    Raises:
        ValueError: it holds what cannot be read.
    """
    life: tuple[int, float, float] | None = None
    values: list[tuple[str, str, str]] = []
    found: dict[_Part, dict[int, Message]] = {_Part.NEWEST: {}, _Part.HELD: {}}
    owners = {f"{scope}_owner": owner for scope, owner in scopes.owners(app, user_id, session_id).items()}
    for part, id_, word, text, number, json, at, until in await database.run(_OPENING, session=session_id, **owners):
        match part:
            case _Part.LIFE if (word, text) == (home or app, user_id):
                life = id_, at, until
            case _Part.STATE:
                values.append((word, text, json))
            case _Part.NEWEST | _Part.HELD:
                found[part][id_] = Message(id_, word, text, number, json not in (None, "{}"), at, until)
    if life is None:
        return None
    generation, created_at, changed_at = life
    newest = found[_Part.NEWEST]
    updated_at = max([changed_at, *(row.created_at for row in newest.values())])
    return Opened(generation, created_at, updated_at, scopes.merged(values), newest, found[_Part.HELD])


def _opening(dialect: str) -> sa.CompoundSelect[Any]:
    session = sa.bindparam("session", type_=sa.Text)
    zero: sa.ColumnElement[int] = sa.literal_column("0")
    generation = sa.select(sessions.c.generation).where(sessions.c.id == session).scalar_subquery()
    in_this_life = messages.c.generation == generation

    def text(json: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.cast(json, sa.Text) if dialect == "postgresql" else json

    def part(number: _Part, *columns: Any) -> sa.Select[Any]:
        return sa.select(sa.literal_column(str(int(number))).label("part"), *columns)

    def said(number: _Part, limit: int, *which: sa.ColumnElement[bool]) -> sa.Select[Any]:
        c = messages.c
        held = text(c.held).label("held")
        covers = sa.func.coalesce(c.covers, zero).label("until")
        query = part(number, c.id, c.role, c.event, c.tokens, held, c.created_at, covers)
        newest_first = query.where(*which, in_this_life).order_by(*NEWEST_FIRST)
        return sa.select(*newest_first.limit(sa.literal_column(str(limit))).subquery().c)

    of_scope = (
        (state.c.scope == scope) & (state.c.owner == sa.bindparam(f"{scope}_owner", type_=sa.Text))
        for scope in scopes.PREFIXES
    )
    life, known = sessions.c, state.c
    return sa.union_all(
        said(_Part.NEWEST, BATCH, of_session(session)),
        said(_Part.HELD, HELD, messages.c.session == session, messages.c.held.is_not(None)),
        part(_Part.STATE, zero, known.scope, known.key, zero, sa.type_coerce(known.value, sa.Text), zero, zero).where(
            sa.or_(*of_scope)
        ),
        part(
            _Part.LIFE, life.generation, life.app, life.user_id, zero, sa.null(), life.created_at, life.updated_at
        ).where(life.id == session),
    )


_OPENING = Statement(_opening)

_TURNS = Statement(
    lambda _dialect: sa.select(sa.func.count()).where(
        messages.c.session == sa.bindparam("session", type_=sa.Text),
        messages.c.generation == sa.bindparam("generation", type_=sa.Integer),
        messages.c.id > sa.bindparam("covers", type_=sa.BigInteger),
        IS_USER_MESSAGE,
    )
)


@dataclass(frozen=True, slots=True)
class Loader:
    """Reads the history of an opened session.

    Attributes:
        turns: the most turns to load; see `count_sent_turns`.
        agent: the author of rebuilt events whose row names none.
    """

    database: Database
    session: str
    opened: Opened
    budget: int | None = None
    turns: int = DEFAULT_MAX_TURNS
    agent: str = ""

    async def load(self) -> tuple[list[Event], HistoryWindow]:
        """Return the events that are sent to the model, oldest first, and how much of the history they are: the
        summary, if there is one, and the messages that it does not cover.
        """
        summary, covers, budget = self._summary, 0, self.budget or DEFAULT_BUDGET_TOKENS
        if summary is not None:
            covers, budget = summary.covers, max(1, budget - summary.tokens)
        newest, is_all = await self._newest(covers)
        turns = self.turns
        if not is_all and sum(row.role == "user" for row in newest.values()) > turns // 2:  # else it cuts none of them
            turns = count_sent_turns(await self._count_turns(covers), turns)
            newest = _of_newest(newest, turns)
        rows = await self._with_held(newest)
        entries = await self._entries([rows[id_] for id_ in sorted(rows)])
        label = f"session {self.session}"
        kept = token_budget_truncate(entries, budget, turns=turns, summarized_id=covers, label=label)
        untold = [entry for entry in entries if entry.id > covers or entry in kept]
        of_all = describe_window(untold, kept, budget=self.budget, turns=turns, newest_id=max(rows, default=0))
        if summary is None:
            return repair_history([entry.event for entry in kept]), of_all
        told = shown(parsed(summary.event, summary.id))
        events = [*told, *repair_history([entry.event for entry in kept])]
        return events, replace(of_all, tokens=of_all.tokens + summary.tokens, summarized_id=covers)

    @property
    def _summary(self) -> Message | None:
        newest = max((id_ for id_, row in self.opened.held.items() if row.covers), default=None)
        return None if newest is None else self.opened.held[newest]

    async def _with_held(self, newest: Mapping[int, Message]) -> dict[int, Message]:
        """Add the older messages that no limit cuts away, and the newest user message."""
        rows = dict(newest)
        if not rows:
            return rows
        oldest = min(rows)
        if not any(row.role == "user" for row in rows.values()):
            rows |= await self._read(messages.c.id < oldest, messages.c.role == "user", limit=1)
        for row in self.opened.held.values():
            if row.id < oldest and not row.covers:
                rows |= await self._turn_of(row.id) if row.waits else {}  # what led to a call comes along
                rows[row.id] = row
        return rows

    async def _newest(self, covers: int) -> tuple[dict[int, Message], bool]:
        """Return the newest messages that no summary covers, and whether these are all. If not, they are one more than
        fits, so that a cut shows.
        """
        rows: dict[int, Message] = {}
        batch: Mapping[int, Message] = self.opened.newest
        tokens = turns = 0
        while batch:
            for id_ in sorted(batch, reverse=True):
                if id_ <= covers:
                    return rows, True
                if batch[id_].covers:
                    continue
                rows[id_] = batch[id_]
                tokens += rows[id_].tokens
                turns += rows[id_].role == "user"
                if tokens > (self.budget or DEFAULT_BUDGET_TOKENS) or turns > self.turns:
                    return rows, False
            batch = await self._read(messages.c.id < min(batch), limit=BATCH) if len(batch) == BATCH else {}
        return rows, True

    async def _count_turns(self, covers: int) -> int:
        """Count the session's turns that no summary covers: its user messages, by an index of their own."""
        generation = self.opened.generation
        [[count]] = await self.database.run(_TURNS, session=self.session, generation=generation, covers=covers)
        return int(count)

    async def _turn_of(self, id_: int) -> dict[int, Message]:
        """The rows from the user's message that led to row `id_` on."""
        said = await self._read(messages.c.id < id_, messages.c.role == "user", limit=1)
        return await self._read(messages.c.id >= min(said, default=id_), limit=4 * BATCH, oldest_first=True)

    async def _read(self, *where: sa.ColumnElement[bool], limit: int, oldest_first: bool = False) -> dict[int, Message]:
        c = messages.c
        query = (
            sa.select(c.id, c.role, c.event, c.tokens, c.held, c.created_at)
            .where(of_session(self.session), c.generation == self.opened.generation, c.covers.is_(None), *where)
            .order_by(*(OLDEST_FIRST if oldest_first else NEWEST_FIRST))
            .limit(limit)
        )
        async with self.database.read() as connection:
            rows = await connection.execute(query)
            return {
                id_: Message(id_, role, event, tokens, bool(held), at) for id_, role, event, tokens, held, at in rows
            }

    async def _entries(self, rows: Sequence[Message]) -> list[HistoryEntry]:
        events = [parsed(row.event, row.id) for row in rows]
        wanted = [references(event) if event else set() for event in events]
        if any(wanted):
            data = await self._blobs(set().union(*wanted))
            for i, (event, digests) in enumerate(zip(events, wanted, strict=True)):
                events[i] = restored(event, data) if event and digests <= data.keys() else None
        whole = await self._rebuilt(rows, events) if any(event is None for event in events) else events
        if self.agent not in ("", FALLBACK_AUTHOR):  # an agent may still be configured under the former name
            for event in filter(None, whole):
                event.author = current_author(event.author)
        return [HistoryEntry(event, row.tokens, row.id) for row, event in zip(rows, whole, strict=True) if event]

    async def _rebuilt(self, rows: Sequence[Message], whole: Sequence[Event | None]) -> list[Event | None]:
        """The events, those that are None made of the columns of their rows."""
        query = sa.select(messages).where(messages.c.id.in_([row.id for row in rows]))
        async with self.database.read() as connection:
            columns = {row.id: row for row in await connection.execute(query)}
        rebuilder = Rebuilder(self.agent)
        events = list(whole)
        for i, message in enumerate(rows):
            if message.id not in columns:  # a reset came between
                continue
            if whole[i] is None:
                events[i] = rebuilder.rebuilt(columns[message.id])
            else:
                rebuilder.passed(columns[message.id])
        return events

    async def _blobs(self, digests: Set[str]) -> dict[str, bytes]:
        query = sa.select(blobs.c.hash, blobs.c.data).where(blobs.c.session == self.session, blobs.c.hash.in_(digests))
        async with self.database.read() as connection:
            return {row.hash: row.data for row in await connection.execute(query)}


def _of_newest(rows: Mapping[int, Message], turns: int) -> dict[int, Message]:
    """Return the rows of the newest turns, and the user message before them, so that a cut shows."""
    begun = sorted((id_ for id_, row in rows.items() if row.role == "user"), reverse=True)[: turns + 1]
    start = begun[turns - 1] if len(begun) > turns else 0
    return {id_: row for id_, row in rows.items() if id_ >= start or id_ in begun}
