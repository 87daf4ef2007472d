"""Reading a session's history: newest first, until as much is there as is sent; its length costs nothing."""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.history import DEFAULT_BUDGET, TURNS, Entry, sendable, token_budget_truncate
from core.sessions.record import Rebuilder, Row, parsed, references, restored
from core.store.schema import blobs, messages

BATCH = 32

#: The most rows that are looked at for calls that wait and for compactions, newest first.
HELD = 64


@dataclass(frozen=True, slots=True)
class Loader:
    """Reads one generation of one session.

    Attributes:
        agent: the author of rebuilt events whose row names none.
    """

    connection: AsyncConnection
    session: str
    generation: int
    budget: int | None = None
    agent: str = ""

    async def load(self) -> list[Event]:
        """What of the history is sent to the model, oldest first."""
        rows = await self._rows()
        entries = await self._entries([rows[id_] for id_ in sorted(rows)])
        kept = token_budget_truncate(entries, self.budget, label=f"session {self.session}")
        return sendable([entry.event for entry in kept])

    async def _rows(self) -> dict[int, sa.Row[Any]]:
        rows = await self._newest()
        if not rows:
            return rows
        oldest = min(rows)
        if not any(row.role == "user" for row in rows.values()):
            rows |= await self._read(messages.c.id < oldest, messages.c.role == "user", limit=1)
        held = await self._read(messages.c.held.is_not(None), messages.c.id < oldest, limit=HELD)
        for id_ in held:
            if held[id_].held:  # a call: what led to it comes along
                rows |= await self._turn_of(id_)
        return rows | held

    async def _newest(self) -> dict[int, sa.Row[Any]]:
        """A row more than fits, if there is one: so that a cut is known to be one."""
        rows: dict[int, sa.Row[Any]] = {}
        tokens = turns = 0
        while tokens <= (self.budget or DEFAULT_BUDGET) and turns <= TURNS:
            older = [messages.c.id < min(rows)] if rows else []
            batch = await self._read(*older, limit=BATCH)
            rows |= batch
            tokens += sum(row.tokens for row in batch.values())
            turns += sum(row.role == "user" for row in batch.values())
            if len(batch) < BATCH:
                break
        return rows

    async def _turn_of(self, id_: int) -> dict[int, sa.Row[Any]]:
        """The rows from the user's message that led to row `id_` on."""
        said = await self._read(messages.c.id < id_, messages.c.role == "user", limit=1)
        return await self._read(messages.c.id >= min(said, default=id_), limit=4 * BATCH, oldest_first=True)

    async def _read(
        self, *where: sa.ColumnElement[bool], limit: int, oldest_first: bool = False
    ) -> dict[int, sa.Row[Any]]:
        query = (
            sa.select(messages)
            .where(messages.c.session == self.session, messages.c.generation == self.generation, *where)
            .order_by(messages.c.id if oldest_first else messages.c.id.desc())
            .limit(limit)
        )
        return {row.id: row for row in await self.connection.execute(query)}

    async def _entries(self, rows: Sequence[sa.Row[Any]]) -> list[Entry]:
        stored = [_stored(row) for row in rows]
        events: list[Event | None] = []
        for i, row in enumerate(stored):
            if i % BATCH == 0:
                await asyncio.sleep(0)  # reading an event takes the better part of 0.1 ms
            events.append(parsed(row))
        data = await self._blobs({digest for event in events if event for digest in references(event)})
        rebuilder = Rebuilder(self.agent)
        entries = []
        for row, event in zip(stored, events, strict=True):
            if event is None or not references(event) <= data.keys():
                entries.append(Entry(rebuilder.rebuilt(row), row.tokens))
            else:
                rebuilder.passed(row)
                entries.append(Entry(restored(event, data), row.tokens))
        return entries

    async def _blobs(self, digests: Set[str]) -> dict[str, bytes]:
        if not digests:
            return {}
        query = sa.select(blobs.c.hash, blobs.c.data).where(blobs.c.session == self.session, blobs.c.hash.in_(digests))
        return {row.hash: row.data for row in await self.connection.execute(query)}


def _stored(row: sa.Row[Any]) -> Row:
    return Row(**{name: value for name, value in row._mapping.items() if name in _COLUMNS})


_COLUMNS = {field.name for field in fields(Row)}
