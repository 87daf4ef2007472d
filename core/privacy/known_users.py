"""Queries for the users of whom the database has data, by platform id and name."""

import json
from collections import defaultdict
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxMessage
from core.store.errors import name_row
from core.store.schema import (
    denial_notices,
    feedback,
    human_requests,
    inbox,
    jobs,
    messages,
    schedules,
    sign_ins,
    spending,
    time_zones,
)
from core.turns.queries import parse_inbox_message


@dataclass(frozen=True, slots=True)
class KnownUser:
    """User of whom the database has data, with the platform's id and the stored display names."""

    id: str
    names: tuple[str, ...]


async def list_sessions_with(connection: AsyncConnection, user_id: str) -> set[str]:
    """Return the ids of sessions in which a stored prompt is by a user or quotes them."""
    is_candidate = sa.cast(messages.c.attribution, sa.Text).contains(json.dumps(user_id), autoescape=True)
    query = sa.select(messages.c.id, messages.c.session, messages.c.attribution).where(is_candidate)
    found = set[str]()
    for id_, session_id, prompt in await connection.execute(query):
        with name_row("messages", id_):  # the text may be a display name
            if user_id in prompt["people"] or any(author == user_id for author, _ in prompt["parts"]):
                found.add(session_id)
    return found


async def count_records(connection: AsyncConnection, user_id: str) -> int:
    """Return the number of a user's rows outside of sessions.

    These are spending, ratings, decisions, denials, schedules, jobs, sign-ins and time zones.
    """
    count = 0
    authors = (feedback.c.author, schedules.c.author, jobs.c.author)
    for column in (*authors, human_requests.c.decided_by, sign_ins.c.person):
        count += await connection.scalar(sa.select(sa.func.count()).where(column == user_id)) or 0
    for column in (spending.c.author, denial_notices.c.user_key, time_zones.c.user_key):
        keys = await connection.execute(sa.select(column).where(column.endswith(user_id, autoescape=True)))
        count += sum(_get_user_id(key) == user_id for key in keys.scalars())
    return count


async def find_users(connection: AsyncConnection, text: str) -> list[KnownUser]:
    """Return the users whose name contains `text` or whose platform id is `text`.

    Case is ignored, and so is a platform's name before the id, as in `slack:U1`. The users are sorted by id. Stored
    prompts, inbox messages, schedules and spending are searched, and sign-ins by the id; an empty text matches all
    users in them.
    """
    names = defaultdict[str, set[str]](set)
    prompts = sa.select(messages.c.id, messages.c.attribution).where(messages.c.attribution.is_not(None))
    for id_, prompt in await connection.execute(prompts):
        with name_row("messages", id_):
            for user_id, name in prompt["people"].items():
                names[user_id].add(name)
    written = sa.select(inbox.c.id, inbox.c.author, inbox.c.message).where(inbox.c.author != "")
    for id_, user_id, inbound in await connection.execute(written):
        if (message := parse_inbox_message(inbound, id_)) is not None:
            names[user_id].add(get_author_name(message))
    scheduled = sa.select(schedules.c.id, schedules.c.author, schedules.c.message)
    for id_, user_id, inbound in await connection.execute(scheduled):
        with name_row("schedules", id_):
            names[user_id].add(get_author_name(InboxMessage.from_json(inbound)))
    spent = sa.select(spending.c.author, spending.c.name).where(spending.c.author != "").distinct()
    for key, name in await connection.execute(spent):
        names[_get_user_id(key)].add(name)
    for user_id in (await connection.execute(sa.select(sign_ins.c.person).distinct())).scalars():
        names[user_id].add("")
    wanted = text.strip().casefold()
    return [
        KnownUser(user_id, tuple(sorted(user_names - {""})))
        for user_id, user_names in sorted(names.items())
        if wanted.rpartition(":")[2] == user_id.casefold() or any(wanted in name.casefold() for name in user_names)
    ]


def get_author_name(message: InboxMessage) -> str:
    return str(message.address.get("speaker") or "")


def _get_user_id(key: str) -> str:
    return key.partition(":")[2]
