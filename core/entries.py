"""The statements by which a message comes into the inbox."""

import sqlalchemy as sa

from core.store.notices import CHANNEL
from core.store.schema import inbox, sessions, turns
from core.store.statement import Statement
from core.store.upsert import insert_of
from core.waiting import is_under_way, is_waiting


def _keeps(dialect: str) -> sa.Insert:
    """Keeps a message of a session that is there, unless it is known; whether others of the session come first.

    It is what `Inbox` does step by step, for the usual case and in one statement.
    """
    text, moment = sa.Text(), inbox.c.sent_at.type
    key, session = sa.bindparam("the_key", type_=text), sa.bindparam("the_session", type_=text)
    message = sa.select(
        key,
        sessions.c.id,
        sessions.c.generation,
        sa.bindparam("the_place", type_=text),
        sa.bindparam("the_author", type_=text),
        sa.bindparam("the_message", type_=inbox.c.inbound.type),
        sa.bindparam("the_sent_at", type_=moment),
        sa.bindparam("the_accepted_at", type_=moment),
    ).where(
        sessions.c.id == session,
        sessions.c.app == sa.bindparam("the_app", type_=text),
        sessions.c.user_id == sa.bindparam("the_place", type_=text),
    )
    columns = ["event_key", "session", "generation", "place", "author", "inbound", "sent_at", "accepted_at"]
    told = []
    if dialect == "postgresql":
        told.append(sa.func.pg_notify(CHANNEL, sa.bindparam("the_worker", type_=text)))
    into = insert_of(dialect, inbox).from_select(columns, message.with_for_update())
    return into.on_conflict_do_nothing().returning(comes_behind(session, key), *told)


def _begins(dialect: str) -> sa.Insert:
    """Begins a session that is not there."""
    now = sa.bindparam("the_accepted_at", type_=sessions.c.created_at.type)
    new = {
        "id": sa.bindparam("the_session", type_=sa.Text),
        "app": sa.bindparam("the_app", type_=sa.Text),
        "user_id": sa.bindparam("the_place", type_=sa.Text),
        "created_at": now,
        "updated_at": now,
    }
    return insert_of(dialect, sessions).values(**new).on_conflict_do_nothing()


KEPT, BEGUN = Statement(_keeps), Statement(_begins)


def comes_behind(session: str | sa.ColumnElement[str], key: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether another message of the session than the one with this key is being answered or waits to be."""
    others = inbox.alias("others")
    waiting = sa.exists().where(others.c.session == session, is_waiting(others), others.c.event_key != key)
    return waiting | sa.exists().where(turns.c.session == session, is_under_way(turns))
