"""Queries and conditions over `inbox` and `turns` that several operations share."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.sessions.resume import discard_run, list_run_ids, resume_run
from core.store.errors import name_row
from core.store.schema import IS_PENDING, human_requests, inbox, schedules, sessions, turns
from core.store.turn_states import ACTIVE_STATES
from core.store.upsert import build_insert

#: Kind of a rerun: `retry` continues from the stored events of the failed turn, `regenerate` starts after the prompt,
#: and `revise` starts with the edited prompt.
RerunKind = Literal["retry", "regenerate", "revise"]


def is_active(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a turn has not ended.

    The states are literals, not parameters, as in the partial index `ix_turns_one_active`; otherwise the database would
    not use that index.
    """
    return table.c.state.in_([sa.literal_column(f"'{state}'") for state in ACTIVE_STATES])


def is_waiting(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an inbox message waits for a turn."""
    return table.c.turn.is_(None) & table.c.outcome.is_(None)


def is_message(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an `inbox` row is a message, a command in a message, or a request for a rerun."""
    no_message = (InboxOutcome.DECIDED, InboxOutcome.PENDING, InboxOutcome.HANDLED)
    return table.c.outcome.is_(None) | table.c.outcome.not_in(no_message)


_BUSY = turns.alias("busy")


def is_idle(session: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a session has no active turn."""
    return ~sa.exists().where(_BUSY.c.session == session, is_active(_BUSY))


def message_columns(inbound: InboxMessage, generation: Any) -> dict[str, Any]:
    """Return a message's values of `inbox` columns, without text, kind and outcome.

    The generation may be an SQL expression. `accepted_at` is the time of this process.
    """
    return {
        "event_key": inbound.event_key,
        "session": inbound.session_id,
        "generation": generation,
        "place": inbound.place,
        "author": inbound.author,
        "sent_at": inbound.sent_at,
        "accepted_at": time.time(),
    }


async def record_message(
    connection: AsyncConnection, inbound: InboxMessage, outcome: InboxOutcome, *, kind: str = "message"
) -> bool:
    """Insert the row of a message that no turn answers, without its text; or end its pending entry.

    The `kind` is the name of a command. The result is False if the event key had another outcome before.
    """
    ended = {"outcome": outcome, "kind": kind, "payload": None, "owner": None}
    row = message_columns(inbound, session_generation(inbound.session_id)) | ended
    insert = build_insert(connection.dialect.name, inbox).values(row)
    found = {"session": insert.excluded.session, "generation": insert.excluded.generation}
    noted = insert.on_conflict_do_update(index_elements=[inbox.c.event_key], set_=ended | found, where=IS_PENDING)
    return (await connection.execute(noted.returning(inbox.c.id))).first() is not None


async def append_triggered(connection: AsyncConnection, message: InboxMessage) -> bool:
    """Store an entry that no person wrote, in the caller's transaction; return whether it is new.

    See `core.inbox.triggered`.
    """
    assert message.trigger is not None, "no person wrote it"
    row = message_columns(message, session_generation(message.session_id)) | {
        "message": message.to_json(),
        "kind": message.trigger.kind,
        "outcome": InboxOutcome.PENDING,
    }
    new = build_insert(connection.dialect.name, inbox).values(row).on_conflict_do_nothing()
    return (await connection.execute(new.returning(inbox.c.id))).first() is not None


async def has_message(connection: AsyncConnection, event_key: str) -> bool:
    row = sa.select(inbox.c.id).where(inbox.c.event_key == event_key)
    return (await connection.execute(row)).first() is not None


def session_generation(session_id: str) -> sa.ColumnElement[int]:
    """Return the SQL expression of a session's generation, which counts up with each reset; 1 for a new session."""
    found = sa.select(sessions.c.generation).where(sessions.c.id == session_id).scalar_subquery()
    return sa.func.coalesce(found, 1)


def parse_inbox_message(data: object, id_: int) -> InboxMessage | None:
    """Return the message in a column of `inbox`; None for NULL, which is a deleted message.

    Raises:
        UnreadableRowError: the value is no message; the error names the row with this id.
    """
    with name_row("inbox", id_):
        return None if data is None else InboxMessage.from_json(data)


def list_readable_messages(column: Iterable[object]) -> list[InboxMessage]:
    """Return the messages in values of `inbox.message`, without those that are deleted or cannot be read."""
    found = list[InboxMessage]()
    for data in column:
        with suppress(ValueError):
            found.append(InboxMessage.from_json(data))
    return found


async def get_turn_messages(connection: AsyncConnection, origin: str) -> tuple[InboxMessage, ...]:
    """Return the inbox messages of a turn that is no rerun (see `Turn.origin`), oldest first.

    Messages that their authors deleted are left out, unless the turn has no others. An edited message has the text that
    the newest turn answered. Messages that the turn has claimed while it ran (see `core.turns.steering`) are left out:
    its prompt lacks them.
    """
    rows = [row for row in await get_inbox_rows(connection, origin) if row.kind != "steering"]
    rows = [row for row in rows if row.outcome is None] or rows
    return tuple(message for row in rows if (message := parse_inbox_message(row.message, row.id)))


async def get_inbox_rows(connection: AsyncConnection, *origins: str) -> Sequence[sa.Row[Any]]:
    """Return the rows of the messages that turns answer, by their `Turn.origin`, oldest first, deleted ones too."""
    query = sa.select(inbox).where(inbox.c.turn.in_(origins)).order_by(inbox.c.sent_at, inbox.c.id)
    return (await connection.execute(query)).all()


async def get_turn_row(connection: AsyncConnection, turn_id: str) -> sa.Row[Any] | None:
    return (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).one_or_none()


@dataclass(frozen=True, slots=True)
class RunAuthors:
    """The people whose words are in a run.

    Attributes:
        messages: the messages that the run answers, and those of the runs that it continues, oldest first.
        answers: the people who answered questions of these runs by a form, as `to_user_state` returns them. Of a
            forgotten person, only that there was one.
        first_author_ids: the platform's ids of the authors of the oldest run's messages.
        is_complete: whether each message is stored, so that its author is known.
    """

    messages: tuple[InboxMessage, ...]
    answers: tuple[Mapping[str, Any], ...]
    first_author_ids: frozenset[str]
    is_complete: bool

    @property
    def ids(self) -> frozenset[str]:
        return frozenset({*(message.author for message in self.messages), *(user["id"] for user in self.answers)})


async def get_run_authors(connection: AsyncConnection, session_id: str, run: str) -> RunAuthors:
    """Return the people whose words are in a run (a `Turn.run` or `Turn.origin`), and in the runs that it continues.

    A run continues another one if its message answers a question of the other one. People who decided on approvals are
    left out. Deleted messages are included, since the run may have read them.
    """
    c = human_requests.c
    origins = list[str]()
    answers = list[Mapping[str, Any]]()
    asking_run = run
    while asking_run and (origin := list_run_ids(asking_run)[0]) not in origins:
        origins.insert(0, origin)
        asks = (c.session == session_id) & c.run.in_(list_run_ids(origin))
        given = await connection.execute(sa.select(c.answer_authors).where(asks))
        answers += [user for users in given.scalars() for user in users]
        asked = sa.select(c.run).where(c.session == session_id, c.answer_run == origin)
        asking_run = (await connection.execute(asked)).scalar() or ""
    found = await get_inbox_rows(connection, *origins)
    messages_ = [(row.turn, message) for row in found if (message := parse_inbox_message(row.message, row.id))]
    return RunAuthors(
        tuple(message for _, message in messages_),
        tuple(answers),
        frozenset(message.author for origin, message in messages_ if origin == origins[0]),
        len(messages_) == len(found),
    )


async def get_requesting_run(connection: AsyncConnection, asking: sa.Row[Any]) -> str | None:
    """Return the id of the run that waits for the approvals and answers that a turn (`asking`) requested."""
    query = sa.select(human_requests.c.run).where(human_requests.c.turn == asking.id).limit(1)
    return (await connection.execute(query)).scalar_one_or_none()


async def prepare_rerun(connection: AsyncConnection, parent: sa.Row[Any], kind: RerunKind) -> RerunKind:
    """Move or delete the stored events of a run that a new turn repeats; return the kind of the rerun.

    The claim of the new turn calls this once. A `retry` moves the ADK events of the run to the end of the history. A
    `regenerate` deletes all but the user's message, and a `revise` deletes all; both delete the schedules that the
    replaced answer shows. Edited texts of the turn's messages replace the former ones in `inbox`. The kind is `revise`
    if a message was edited or deleted meanwhile, and instead of `regenerate` if the run has read messages since it
    began: the new prompt has them.
    """
    rows = await get_inbox_rows(connection, parent.origin)
    has_read = kind == "regenerate" and any(row.kind == "steering" for row in rows)
    if has_read or any(row.edited_message or row.outcome for row in rows):
        kind = "revise"
    for row in rows:
        if row.edited_message:
            revised = sa.update(inbox).where(inbox.c.id == row.id)
            await connection.execute(revised.values(message=row.edited_message, edited_message=None))
    if kind == "revise":
        steering = sa.update(inbox).where(inbox.c.turn == parent.origin, inbox.c.kind == "steering")
        await connection.execute(steering.values(kind="message"))
    if kind == "retry":
        await resume_run(connection, parent.session, parent.run or parent.origin)
    else:
        await discard_run(connection, parent.session, parent.origin, keep_prompt=kind == "regenerate")
        await connection.execute(sa.delete(schedules).where(schedules.c.turn == parent.origin))
    return kind
