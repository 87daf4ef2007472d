"""Watermarks: the time until which all messages of a platform are stored.

After a disconnection, the backfill fetches the messages since the watermark, at the places where people talk to the
bot.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from core.messages.inbox_message import InboxOutcome
from core.store.database import Database
from core.store.schema import inbox, platforms, sessions
from core.store.upsert import insert_or_update

#: The most event keys per query.
_KEYS_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class ActivePlace:
    """A channel with its threads, or direct messages, where people talk to the bot.

    Attributes:
        id: the id of the place, as `InboxMessage.place`: ADK's `user_id`.
        begun_at: the time at which the first session of the place was created.
        sessions: the ids of the place's active sessions, the one with the newest message first.
    """

    id: str
    begun_at: float
    sessions: tuple[str, ...] = ()


class Watermarks:
    """Watermarks in the table `channels`, and queries of the inbox for the backfill.

    A watermark has the name of a platform (`slack`), or of one of its gateway shards (`discord:0/2`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_watermark(self, name: str) -> float | None:
        """Return the watermark of a platform or shard; None for a new one.

        A shard is named `PLATFORM:SHARD/COUNT`. It may have no watermark after the count of shards changed. The result
        is then the earliest watermark of the shards with the count that was used last. Nothing is stored.
        """
        platform = name.partition(":")[0]
        known = sa.select(platforms.c.name, platforms.c.watermark).where(
            (platforms.c.name == platform) | platforms.c.name.startswith(f"{platform}:", autoescape=True),
            platforms.c.watermark.is_not(None),
        )
        async with self._database.read() as connection:
            found: dict[str, float] = {row.name: row.watermark for row in await connection.execute(known)}
        if name in found or not found:
            return found.get(name)
        divided = defaultdict[str, list[float]](list)
        for shard, received_at in found.items():
            divided[shard.rpartition("/")[2]].append(received_at)
        return min(max(divided.values(), key=max))

    async def save_watermark(self, name: str, at: float) -> None:
        """Store the watermark of a platform or shard; it replaces the former one, even a later one."""
        async with self._database.write() as connection:
            await insert_or_update(connection, platforms, {"name": name, "watermark": at})

    async def list_active_places(self, platform: str, *, since: float, limit: int) -> list[ActivePlace]:
        """Return the `limit` places with the newest messages, newest first.

        A session is active if its newest message is not older than `since`. At most `limit` active sessions of all
        places together are returned, the newest ones.
        """
        is_of_platform = sessions.c.id.startswith(f"{platform}:", autoescape=True)
        newest = (
            sa.select(inbox.c.session, sa.func.max(inbox.c.sent_at).label("at")).group_by(inbox.c.session).subquery()
        )
        last_message_at = sa.func.coalesce(newest.c.at, sessions.c.created_at)
        joined = sa.join(sessions, newest, newest.c.session == sessions.c.id, isouter=True)
        places = (
            sa.select(sessions.c.user_id, sa.func.min(sessions.c.created_at).label("begun_at"))
            .select_from(joined)
            .where(is_of_platform)
            .group_by(sessions.c.user_id)
            .order_by(sa.func.max(last_message_at).desc())
        )
        active = (
            sa.select(sessions.c.id, sessions.c.user_id)
            .select_from(joined)
            .where(is_of_platform, last_message_at >= since)
        )
        ids: dict[str, list[str]] = {}
        async with self._database.read() as connection:
            found = (await connection.execute(places.limit(limit))).all()
            for row in await connection.execute(active.order_by(last_message_at.desc()).limit(limit)):
                ids.setdefault(row.user_id, []).append(row.id)
        return [ActivePlace(row.user_id, row.begun_at, tuple(ids.get(row.user_id, ()))) for row in found]

    async def find_known_keys(self, event_keys: Iterable[str]) -> set[str]:
        keys = list(event_keys)
        known = set[str]()
        async with self._database.read() as connection:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                batch = keys[start : start + _KEYS_PER_QUERY]
                query = sa.select(inbox.c.event_key).where(inbox.c.event_key.in_(batch))
                known.update((await connection.execute(query)).scalars())
        return known

    async def get_cancellation_times(
        self, session_ids: Collection[str]
    ) -> tuple[Mapping[str, float], Mapping[tuple[str, str], float]]:
        """Return the times of the last resets by session id, and of the last `stop` by session id and author's id."""
        is_reset = inbox.c.outcome == InboxOutcome.RESET
        is_stop = (inbox.c.outcome == InboxOutcome.COMMAND) & (inbox.c.kind == "stop")
        query = (
            sa.select(inbox.c.session, inbox.c.author, inbox.c.outcome, inbox.c.sent_at)
            .where(inbox.c.session.in_(session_ids), is_reset | is_stop)
            .order_by(inbox.c.sent_at)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        resets = {row.session: row.sent_at for row in rows if row.outcome == InboxOutcome.RESET}
        return resets, {(row.session, row.author): row.sent_at for row in rows if row.outcome != InboxOutcome.RESET}
