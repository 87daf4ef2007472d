"""Finds the users that the database knows, by platform id and by name."""

import json
from collections import defaultdict
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.store.schema import approvals, feedback, inbox, messages, refusals, spending
from core.turns.queries import parse_message


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user of whom something is stored.

    Attributes:
        id: the platform's id.
        names: the names that are stored with it, sorted.
    """

    id: str
    names: tuple[str, ...]


async def sessions_that_name(connection: AsyncConnection, user_id: str) -> set[str]:
    """Return the sessions with a stored message that names this id among its speakers."""
    spoken = sa.cast(messages.c.spoken, sa.Text).contains(json.dumps(user_id), autoescape=True)  # a name, perhaps
    query = sa.select(messages.c.session, messages.c.spoken).where(spoken)
    return {
        session
        for session, kept in await connection.execute(query)
        if user_id in kept["people"] or any(speaker == user_id for speaker, _ in kept["parts"])
    }


async def count_records(connection: AsyncConnection, user_id: str) -> int:
    """Count the rows about a user outside of conversations: spending, feedback, decisions, refusals."""
    count = 0
    for column in (feedback.c.author, approvals.c.decided_by):
        count += await connection.scalar(sa.select(sa.func.count()).where(column == user_id)) or 0
    for column in (spending.c.person, refusals.c.person):
        keys = await connection.execute(sa.select(column).where(column.endswith(user_id, autoescape=True)))
        count += sum(_id_in(key) == user_id for key in keys.scalars())
    return count


async def find_users(connection: AsyncConnection, text: str) -> list[KnownUser]:
    """Return the users whose name contains `text`, or whose id it is in another notation (`slack:U1`, `u1`)."""
    names = defaultdict[str, set[str]](set)
    for kept in (
        await connection.execute(sa.select(messages.c.spoken).where(messages.c.spoken.is_not(None)))
    ).scalars():
        for user_id, name in kept["people"].items():
            names[user_id].add(name)
    said = sa.select(inbox.c.author, inbox.c.inbound).where(inbox.c.author != "")
    for user_id, inbound in await connection.execute(said):
        message = parse_message(inbound)
        name = message.address.get("speaker") if message is not None else None
        names[user_id].add(name if isinstance(name, str) else "")
    spent = sa.select(spending.c.person, spending.c.name).where(spending.c.person != "").distinct()
    for key, name in await connection.execute(spent):
        names[_id_in(key)].add(name)
    wanted = text.strip().casefold()
    return [
        KnownUser(user_id, tuple(sorted(found - {""})))
        for user_id, found in sorted(names.items())
        if wanted.rpartition(":")[2] == user_id.casefold() or any(wanted in name.casefold() for name in found)
    ]


def _id_in(key: str) -> str:
    """Return the id of a key like `slack:U1`."""
    return key.partition(":")[2]
