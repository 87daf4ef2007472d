"""Places: where the bot has been spoken to, and until when all that was said there has been heard."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from core.inbox_message import InboxOutcome
from core.store.database import Database
from core.store.schema import channels, inbox, sessions
from core.store.upsert import insert_or_update

#: How many event keys one statement asks for.
_KEYS = 500


@dataclass(frozen=True, slots=True)
class ActivePlace:
    """Where the bot speaks: a channel with its threads, or direct messages.

    Attributes:
        id: ADK's `user_id`.
        begun_at: since when (seconds since the epoch) the bot speaks there.
        sessions: the conversations there that are still alive, the one that was spoken in last first.
    """

    id: str
    begun_at: float
    sessions: tuple[str, ...] = ()


class Watermarks:
    """What the tables tell of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_watermark(self, channel: str) -> float | None:
        """Until when (seconds since the epoch) all that was said has been heard; nothing for a channel that is new. A
        part of one that was divided otherwise before (`NAME:PART/COUNT`) goes by what the parts of then have heard.

        Raises:
            StoreError: the database cannot be read.
        """
        whole = channel.partition(":")[0]
        known = sa.select(channels.c.name, channels.c.heard_at).where(
            (channels.c.name == whole) | channels.c.name.startswith(f"{whole}:", autoescape=True),
            channels.c.heard_at.is_not(None),
        )
        async with self._database.read() as connection:
            found: dict[str, float] = {row.name: row.heard_at for row in await connection.execute(known)}
        if channel in found or not found:
            return found.get(channel)
        divided = defaultdict[str, list[float]](list)
        for name, heard_at in found.items():
            divided[name.rpartition("/")[2]].append(heard_at)
        return min(max(divided.values(), key=max))

    async def save_watermark(self, channel: str, at: float) -> None:
        """Keep until when all has been heard.

        Raises:
            StoreError: it could not be kept.
        """
        async with self._database.write() as connection:
            await insert_or_update(connection, channels, {"name": channel, "heard_at": at})

    async def list_active_places(self, channel: str, *, since: float, limit: int) -> list[ActivePlace]:
        """The places of a channel, the one that was spoken in last first.

        Args:
            since: a conversation in which nobody has spoken since then (seconds since the epoch) is not alive.
            limit: the most places, and the most conversations of all of them.

        Raises:
            StoreError: the database cannot be read.
        """
        here = sessions.c.id.startswith(f"{channel}:", autoescape=True)
        said = sa.select(inbox.c.session, sa.func.max(inbox.c.sent_at).label("at")).group_by(inbox.c.session).subquery()
        spoken_at = sa.func.coalesce(said.c.at, sessions.c.created_at)
        spoken = sa.join(sessions, said, said.c.session == sessions.c.id, isouter=True)
        places = (
            sa.select(sessions.c.user_id, sa.func.min(sessions.c.created_at).label("begun_at"))
            .select_from(spoken)
            .where(here)
            .group_by(sessions.c.user_id)
            .order_by(sa.func.max(spoken_at).desc())
        )
        alive = sa.select(sessions.c.id, sessions.c.user_id).select_from(spoken).where(here, spoken_at >= since)
        ids: dict[str, list[str]] = {}
        async with self._database.read() as connection:
            found = (await connection.execute(places.limit(limit))).all()
            for row in await connection.execute(alive.order_by(spoken_at.desc()).limit(limit)):
                ids.setdefault(row.user_id, []).append(row.id)
        return [ActivePlace(row.user_id, row.begun_at, tuple(ids.get(row.user_id, ()))) for row in found]

    async def find_known_keys(self, event_keys: Iterable[str]) -> set[str]:
        """Those of the keys under which a message has been accepted.

        Raises:
            StoreError: the database cannot be read.
        """
        keys, known = list(event_keys), set[str]()
        async with self._database.read() as connection:
            for start in range(0, len(keys), _KEYS):
                some = keys[start : start + _KEYS]
                query = sa.select(inbox.c.event_key).where(inbox.c.event_key.in_(some))
                known.update((await connection.execute(query)).scalars())
        return known

    async def get_cancellation_times(
        self, session_ids: Collection[str]
    ) -> tuple[Mapping[str, float], Mapping[tuple[str, str], float]]:
        """Return the times of the last resets, by session, and of the last `stop` commands, by session and author.

        Raises:
            StoreError: the database cannot be read.
        """
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
