"""Loads a session with its newest messages; long sessions take no longer.

One SQL statement reads the session, its state and its newest messages at one moment. Further statements are needed only
for long turns and for calls without a response.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from google.adk.events.event import Event

from core.messages.identity import FALLBACK_AUTHOR, current_author
from core.observability.secret_redaction import RunSecrets
from core.sessions import state as scopes
from core.sessions.codec import NEWEST_FIRST, OLDEST_FIRST, is_in_session, list_blob_digests, parse_event, restore_blobs
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
from core.sessions.history_summary import to_prompt_events
from core.sessions.legacy import EventRebuilder
from core.store.database import Database
from core.store.errors import name_row
from core.store.schema import IS_USER_MESSAGE, blobs, messages, sessions, state

#: The most rows of `messages` in one read: the default number of turns with two messages each, and some more.
BATCH_ROWS = 2 * DEFAULT_MAX_TURNS + 8

#: The most rows, newest first, that are read for calls without a response and for summaries.
MAX_REQUIRED_ROWS = 64


class StoredMessage(NamedTuple):
    """Row of `messages` with the columns that are needed to load a history.

    Attributes:
        event: the ADK event as JSON.
        tokens: the estimated tokens of the message in a model call.
        has_long_running_calls: whether the message has long-running calls, so that it is sent regardless of the limits.
        summarized_id: of a summary, the id of the last message that the summary covers; else 0.
        unmasked: the JSON of the column `unmasked`; None for a message without secrets.
    """

    id: int
    role: str
    event: str | None
    tokens: int
    has_long_running_calls: bool
    created_at: float
    summarized_id: int = 0
    run: str = ""
    unmasked: str | None = None


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """Session, its ADK state and its newest messages, as read at one moment.

    Attributes:
        updated_at: the time of the newest message or change of the session.
        state: the values of ADK's state by key, with ADK's prefixes `app:` and `user:`.
        newest: the newest messages, at most `BATCH_ROWS`, by row id.
        required: the newest summaries, ADK's compactions and messages with long-running calls, at most
            `MAX_REQUIRED_ROWS`, by row id. Recent ones are in `newest`, too.
    """

    generation: int
    updated_at: float
    state: Mapping[str, Any]
    newest: Mapping[int, StoredMessage]
    required: Mapping[int, StoredMessage]


class _RowKind(IntEnum):
    SESSION = 0
    STATE = 1
    NEWEST = 2
    REQUIRED = 3


async def read_snapshot(
    database: Database, *, app: str, user_id: str, session_id: str, home_app: str | None = None
) -> SessionSnapshot | None:
    """Read a session, its ADK state and its newest messages by one SQL statement.

    Args:
        app: the name of the agent's app; its `app:` and `user:` state is read.
        user_id: the place of the session, as `InboxMessage.place`.
        home_app: the app under which the session is stored; None for `app`.

    Raises:
        ValueError: a stored text is not UTF-8, or a value of the state is not JSON.
    """
    session_columns: tuple[int, float] | None = None
    state_rows: list[tuple[str, str, str]] = []
    rows_by_kind: dict[_RowKind, dict[int, StoredMessage]] = {_RowKind.NEWEST: {}, _RowKind.REQUIRED: {}}
    owners = {f"{scope}_owner": owner for scope, owner in scopes.get_scope_owners(app, user_id, session_id).items()}
    for part, id_, word, text, number, value, at, until, run, unmasked in await database.run(
        _build_snapshot_query(database.engine.dialect.name), session=session_id, **owners
    ):
        match part:
            case _RowKind.SESSION if (word, text) == (home_app or app, user_id):
                session_columns = id_, at
            case _RowKind.STATE:
                state_rows.append((word, text, value))
            case _RowKind.NEWEST | _RowKind.REQUIRED:
                has_calls = value not in (None, "{}")
                rows_by_kind[part][id_] = StoredMessage(id_, word, text, number, has_calls, at, until, run, unmasked)
    if session_columns is None:
        return None
    generation, changed_at = session_columns
    newest = rows_by_kind[_RowKind.NEWEST]
    updated_at = max([changed_at, *(row.created_at for row in newest.values())])
    return SessionSnapshot(
        generation, updated_at, scopes.merge_state(state_rows), newest, rows_by_kind[_RowKind.REQUIRED]
    )


@cache
def _build_snapshot_query(dialect: str) -> sa.CompoundSelect[Any]:
    """Return the query of a session, its state and its messages, as one UNION.

    Each row has its `_RowKind` and nine columns. `SESSION`: generation, app, user id, 0, NULL, time of the change, 0,
    NULL, NULL. `STATE`: 0, scope, key, 0, JSON value, 0, 0, NULL, NULL. `NEWEST` and `REQUIRED`: id, role, event,
    tokens, long-running calls, time, `summarized_id` or 0, run, `unmasked`.
    """
    session = sa.bindparam("session", type_=sa.Text)
    zero: sa.ColumnElement[int] = sa.literal_column("0")
    generation = sa.select(sessions.c.generation).where(sessions.c.id == session).scalar_subquery()
    in_generation = messages.c.generation == generation

    def to_text(json: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.cast(json, sa.Text) if dialect == "postgresql" else sa.type_coerce(json, sa.Text)

    def select_rows(kind: _RowKind, *columns: Any) -> sa.Select[Any]:
        return sa.select(sa.literal_column(str(int(kind))).label("part"), *columns)

    def select_messages(kind: _RowKind, limit: int, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        c = messages.c
        calls = to_text(c.long_running_calls).label("calls")
        covers = sa.func.coalesce(c.summarized_id, zero).label("until")
        unmasked = sa.type_coerce(c.unmasked, sa.Text).label("unmasked")
        query = select_rows(
            kind, c.id, c.role, c.event, c.tokens, calls, c.created_at, covers, c.invocation_id, unmasked
        )
        newest_first = query.where(*conditions, in_generation).order_by(*NEWEST_FIRST)
        return sa.select(*newest_first.limit(sa.literal_column(str(limit))).subquery().c)

    state_rows = (
        (state.c.scope == scope) & (state.c.owner == sa.bindparam(f"{scope}_owner", type_=sa.Text))
        for scope in scopes.SCOPE_PREFIXES
    )
    session_row = sessions.c
    rows = state.c
    return sa.union_all(
        select_messages(_RowKind.NEWEST, BATCH_ROWS, is_in_session(session)),
        select_messages(
            _RowKind.REQUIRED,
            MAX_REQUIRED_ROWS,
            messages.c.session == session,
            messages.c.long_running_calls.is_not(None),
        ),
        select_rows(
            _RowKind.STATE,
            zero,
            rows.scope,
            rows.key,
            zero,
            sa.type_coerce(rows.value, sa.Text),
            zero,
            zero,
            sa.null(),
            sa.null(),
        ).where(sa.or_(*state_rows)),
        select_rows(
            _RowKind.SESSION,
            session_row.generation,
            session_row.app,
            session_row.user_id,
            zero,
            sa.null(),
            session_row.updated_at,
            zero,
            sa.null(),
            sa.null(),
        ).where(session_row.id == session),
    )


_COUNT_TURNS = sa.select(sa.func.count()).where(
    messages.c.session == sa.bindparam("session", type_=sa.Text),
    messages.c.generation == sa.bindparam("generation", type_=sa.Integer),
    messages.c.id > sa.bindparam("summarized_id", type_=sa.BigInteger),
    IS_USER_MESSAGE,
)


@dataclass(frozen=True, slots=True)
class HistoryLoader:
    """Loader of the part of a session's history that is sent to the model.

    Attributes:
        snapshot: the session with its newest messages, from `read_snapshot`.
        budget: the most tokens; None or 0 for 32,000.
        turns: the most turns to load. If the history has more, the newest ones are loaded, between half of `turns` and
            `turns`: see `count_sent_turns`.
        agent: the author of an event that is rebuilt from a row without an author.
        runs: the ids of the runs whose events are loaded with their secrets.
        secrets: the secrets in these events are added.
    """

    database: Database
    session: str
    snapshot: SessionSnapshot
    budget: int | None = None
    turns: int = DEFAULT_MAX_TURNS
    agent: str = ""
    runs: Set[str] = frozenset()
    secrets: RunSecrets = field(default_factory=RunSecrets)

    async def load(self) -> tuple[list[Event], HistoryWindow]:
        """Return the ADK events that are sent to the model, oldest first, and their size.

        The events are the newest summary, as a user message, if there is one, and the messages after it. These are the
        messages within the limits, and older ones with calls that may still be answered. Only such calls lack a
        response.
        """
        summary = self._summary
        summarized_id = 0
        budget = self.budget or DEFAULT_BUDGET_TOKENS
        if summary is not None:
            summarized_id = summary.summarized_id
            budget = max(1, budget - summary.tokens)
        newest, is_all = await self._read_newest(summarized_id)
        turns = self.turns
        if not is_all and sum(row.role == "user" for row in newest.values()) > turns // 2:  # else it cuts none of them
            turns = count_sent_turns(await self._count_turns(summarized_id), turns)
            newest = _take_newest_turns(newest, turns)
        rows = await self._add_required_rows(newest)
        entries = await self._to_entries([rows[id_] for id_ in sorted(rows)])
        label = f"session {self.session}"
        kept = token_budget_truncate(entries, budget, turns=turns, summarized_id=summarized_id, label=label)
        uncovered = [entry for entry in entries if entry.id > summarized_id or entry in kept]
        window = describe_window(uncovered, kept, budget=self.budget, turns=turns, newest_id=max(rows, default=0))
        if summary is None:
            return repair_history([entry.event for entry in kept]), window
        summary_events = to_prompt_events(parse_event(summary.event, summary.id))
        events = [*summary_events, *repair_history([entry.event for entry in kept])]
        return events, replace(window, tokens=window.tokens + summary.tokens, summarized_id=summarized_id)

    @property
    def _summary(self) -> StoredMessage | None:
        newest = max((id_ for id_, row in self.snapshot.required.items() if row.summarized_id), default=None)
        return None if newest is None else self.snapshot.required[newest]

    async def _add_required_rows(self, newest: Mapping[int, StoredMessage]) -> dict[int, StoredMessage]:
        """Return rows of the history, with older messages that are sent in any case."""
        rows = dict(newest)
        if not rows:
            return rows
        oldest = min(rows)
        if not any(row.role == "user" for row in rows.values()):
            rows |= await self._read_rows(messages.c.id < oldest, messages.c.role == "user", limit=1)
        for row in self.snapshot.required.values():
            if row.id < oldest and not row.summarized_id:
                rows |= (
                    await self._read_turn(row.id) if row.has_long_running_calls else {}
                )  # a call needs the messages that led to it
                rows[row.id] = row
        return rows

    async def _read_newest(self, summarized_id: int) -> tuple[dict[int, StoredMessage], bool]:
        """Return the newest messages after the summary up to the first over a limit, and whether these are all."""
        rows: dict[int, StoredMessage] = {}
        batch: Mapping[int, StoredMessage] = self.snapshot.newest
        tokens = turns = 0
        while batch:
            for id_ in sorted(batch, reverse=True):
                if id_ <= summarized_id:
                    return rows, True
                if batch[id_].summarized_id:
                    continue
                rows[id_] = batch[id_]
                tokens += rows[id_].tokens
                turns += rows[id_].role == "user"
                if tokens > (self.budget or DEFAULT_BUDGET_TOKENS) or turns > self.turns:
                    return rows, False
            batch = (
                await self._read_rows(messages.c.id < min(batch), limit=BATCH_ROWS) if len(batch) == BATCH_ROWS else {}
            )
        return rows, True

    async def _count_turns(self, summarized_id: int) -> int:
        """Count the user messages after the summary, by the index `ix_messages_turns` alone."""
        generation = self.snapshot.generation
        [[count]] = await self.database.run(
            _COUNT_TURNS, session=self.session, generation=generation, summarized_id=summarized_id
        )
        return int(count)

    async def _read_turn(self, id_: int) -> dict[int, StoredMessage]:
        """Return the messages since the user message before a message, by row id.

        The message itself and all later ones are returned too, but only the oldest `4 * BATCH_ROWS` of all.
        """
        prompts = await self._read_rows(messages.c.id < id_, messages.c.role == "user", limit=1)
        return await self._read_rows(
            messages.c.id >= min(prompts, default=id_), limit=4 * BATCH_ROWS, oldest_first=True
        )

    async def _read_rows(
        self, *conditions: sa.ColumnElement[bool], limit: int, oldest_first: bool = False
    ) -> dict[int, StoredMessage]:
        c = messages.c
        query = (
            sa.select(
                c.id,
                c.role,
                c.event,
                c.tokens,
                c.long_running_calls,
                c.created_at,
                c.invocation_id,
                sa.type_coerce(c.unmasked, sa.Text),
            )
            .where(
                is_in_session(self.session),
                c.generation == self.snapshot.generation,
                c.summarized_id.is_(None),
                *conditions,
            )
            .order_by(*(OLDEST_FIRST if oldest_first else NEWEST_FIRST))
            .limit(limit)
        )
        async with self.database.read() as connection:
            rows = await connection.execute(query)
            return {
                id_: StoredMessage(id_, role, event, tokens, bool(calls), at, run=run, unmasked=unmasked)
                for id_, role, event, tokens, calls, at, run, unmasked in rows
            }

    async def _to_entries(self, rows: Sequence[StoredMessage]) -> list[HistoryEntry]:
        """Return the ADK events of messages, with their files from `blobs`.

        A row without an event, or without one of its files, is rebuilt from its columns, or left out if it was deleted
        meanwhile.
        """
        events = [self._parse_event(row) for row in rows]
        digests_by_event = [list_blob_digests(event) if event else set() for event in events]
        if any(digests_by_event):
            data = await self._read_blobs(set().union(*digests_by_event))
            for i, (event, digests) in enumerate(zip(events, digests_by_event, strict=True)):
                events[i] = restore_blobs(event, data) if event and digests <= data.keys() else None
        complete = await self._rebuild_missing(rows, events) if any(event is None for event in events) else events
        if self.agent not in ("", FALLBACK_AUTHOR):  # an agent may still be configured under the former name
            for event in filter(None, complete):
                event.author = current_author(event.author)
        return [HistoryEntry(event, row.tokens, row.id) for row, event in zip(rows, complete, strict=True) if event]

    def _parse_event(self, row: StoredMessage) -> Event | None:
        if row.unmasked is None or row.run not in self.runs:
            return parse_event(row.event, row.id)
        with name_row("messages", row.id):
            unmasked = json.loads(row.unmasked)
            self.secrets.update(unmasked["secrets"])
            return parse_event(unmasked["event"], row.id)

    async def _rebuild_missing(
        self, rows: Sequence[StoredMessage], read_events: Sequence[Event | None]
    ) -> list[Event | None]:
        """Return the events of rows; a missing event is rebuilt from its row's columns."""
        query = sa.select(messages).where(messages.c.id.in_([row.id for row in rows]))
        async with self.database.read() as connection:
            columns = {row.id: row for row in await connection.execute(query)}
        rebuilder = EventRebuilder(self.agent)
        events = list(read_events)
        for i, message in enumerate(rows):
            if message.id not in columns:  # a reset came between
                continue
            with name_row("messages", message.id):
                if read_events[i] is None:
                    events[i] = rebuilder.rebuild_event(columns[message.id])
                else:
                    rebuilder.track_calls(columns[message.id])
        return events

    async def _read_blobs(self, digests: Set[str]) -> dict[str, bytes]:
        query = sa.select(blobs.c.hash, blobs.c.data).where(blobs.c.session == self.session, blobs.c.hash.in_(digests))
        async with self.database.read() as connection:
            return {row.hash: row.data for row in await connection.execute(query)}


def _take_newest_turns(rows: Mapping[int, StoredMessage], turns: int) -> dict[int, StoredMessage]:
    """Return the newest turns, and the user message before, by which `describe_window` sees the cut."""
    turn_starts = sorted((id_ for id_, row in rows.items() if row.role == "user"), reverse=True)[: turns + 1]
    start = turn_starts[turns - 1] if len(turn_starts) > turns else 0
    return {id_: row for id_, row in rows.items() if id_ >= start or id_ in turn_starts}
