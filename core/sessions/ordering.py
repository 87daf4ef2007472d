"""The messages of one session in their order, so that what was said in all others costs nothing."""

import sqlalchemy as sa

from core.store.schema import messages

NEWEST_FIRST = messages.c.session.desc(), messages.c.id.desc()
OLDEST_FIRST = messages.c.session, messages.c.id


def of_session(session: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether a message is of that session; to be read in one of the two orders.

    PostgreSQL, told `=`, takes the session out of the order, and where sessions are few and long, it goes back through
    the ids of all that was said since in all of them.
    """
    return (messages.c.session >= session) & (messages.c.session <= session)
