"""The statements by which a message comes into the inbox."""

import sqlalchemy as sa

from core.store.fast_path import Statement
from core.store.notify import CHANNEL
from core.store.schema import inbox, sessions, turns
from core.store.upsert import insert_of
from core.turns.queries import is_under_way, is_waiting

_TEXT = sa.Text()
_KEY, _SESSION = sa.bindparam("the_key", type_=_TEXT), sa.bindparam("the_session", type_=_TEXT)


def _keeps(dialect: str) -> sa.Insert:
    """Keeps a message of a session that is there, unless it is known; whether others of the session come first.

    It is what `Inbox` does step by step, for the usual case and in one statement.
    """
    there = sa.select(sessions.c.id, sessions.c.generation).where(
        sessions.c.id == _SESSION,
        sessions.c.app == sa.bindparam("the_app", type_=_TEXT),
        sessions.c.user_id == sa.bindparam("the_place", type_=_TEXT),
    )
    return _kept(dialect, there.with_for_update())


def _begins(dialect: str) -> sa.Insert:
    """Begins a session that is not there; on PostgreSQL, with its first message, as `_keeps` has it."""
    now = sa.bindparam("the_accepted_at", type_=sessions.c.created_at.type)
    new = {
        "id": _SESSION,
        "app": sa.bindparam("the_app", type_=_TEXT),
        "user_id": sa.bindparam("the_place", type_=_TEXT),
        "created_at": now,
        "updated_at": now,
    }
    begins = insert_of(dialect, sessions).values(**new).on_conflict_do_nothing()
    if dialect != "postgresql":
        return begins
    begun = begins.returning(sessions.c.id, sessions.c.generation).cte("begun")
    return _kept(dialect, sa.select(begun.c.id, begun.c.generation))


def _kept(dialect: str, session: sa.Select[tuple[str, int]]) -> sa.Insert:
    """Keeps a message of a session, of which this selects the id and the generation."""
    moment = inbox.c.sent_at.type
    message = session.add_columns(
        _KEY,
        sa.bindparam("the_place", type_=_TEXT),
        sa.bindparam("the_author", type_=_TEXT),
        sa.bindparam("the_message", type_=inbox.c.inbound.type),
        sa.bindparam("the_sent_at", type_=moment),
        sa.bindparam("the_accepted_at", type_=moment),
    )
    columns = ["session", "generation", "event_key", "place", "author", "inbound", "sent_at", "accepted_at"]
    told = []
    if dialect == "postgresql":
        told.append(sa.func.pg_notify(CHANNEL, sa.bindparam("the_worker", type_=_TEXT)))
    into = insert_of(dialect, inbox).from_select(columns, message)
    return into.on_conflict_do_nothing().returning(comes_behind(_SESSION, _KEY), *told)


KEPT, BEGUN = Statement(_keeps), Statement(_begins)


def comes_behind(session: str | sa.ColumnElement[str], key: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether another message of the session than the one with this key is being answered or waits to be."""
    others = inbox.alias("others")
    waiting = sa.exists().where(others.c.session == session, is_waiting(others), others.c.event_key != key)
    return waiting | sa.exists().where(turns.c.session == session, is_under_way(turns))
