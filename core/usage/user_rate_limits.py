"""Limits of messages and commands per person and place, and notices about them.

Messages are counted by their rows in the inbox: all workers count the same, and a message that is delivered twice
counts once. A denied message has no row. A person is notified once per period.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages.inbox_message import InboxOutcome
from core.store.database import Database
from core.store.schema import denial_notices, inbox
from core.store.upsert import build_insert

UNIT_SECONDS: Mapping[str, float] = {"m": 60.0, "h": 3600.0, "d": 86_400.0}

_RATE_PATTERN = re.compile(r"(?P<count>[1-9]\d{0,5})\s*/\s*(?P<unit>[mhd])")

#: Reason for denying a message or command: no access, too many messages, or too many commands.
DenialKind = Literal["access", "rate", "command"]

#: Least time between two notices to a person about missing access.
NOTICE_INTERVAL_SECONDS = 3600.0

#: Time for which an expired notice is stored: longer than a platform delivers a message again.
EXPIRED_NOTICE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limit of messages or commands: at most `max_count` within `seconds`."""

    max_count: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        """Return the limit in a setting's value, such as `20/h`: 1 to 999999, and `m`, `h` or `d`.

        Raises:
            ValueError: the text is not a rate limit.
        """
        match = _RATE_PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError("it must be a number and a time, such as 20/h (m is a minute, h an hour, d a day)")
        return cls(int(match["count"]), UNIT_SECONDS[match["unit"]])


@dataclass(frozen=True, slots=True)
class RateLimitDenial:
    """Denial by a rate limit; from `until` on, messages or commands are accepted again."""

    until: float

    @property
    def minutes(self) -> int:
        return max(1, ceil((self.until - time.time()) / 60))


#: Limit of one person's commands, per worker.
COMMAND_RATE = RateLimit(60, 60.0)


class CommandLimiter:
    """Rate limiter of each person's commands to this worker, in fixed time windows.

    It counts in memory: slash commands have no row in the inbox, and a refused command must cost less than an accepted
    one.
    """

    def __init__(self, rate: RateLimit = COMMAND_RATE) -> None:
        self._rate = rate
        self._window = 0
        self._counts = Counter[str]()

    def consume(self, person: str) -> RateLimitDenial | None:
        """Count a command of a person; return a denial over the limit."""
        window = int(time.time() // self._rate.seconds)
        if window != self._window:
            self._window = window
            self._counts = Counter()
        self._counts[person] += 1
        return (
            RateLimitDenial((window + 1) * self._rate.seconds) if self._counts[person] > self._rate.max_count else None
        )


@dataclass(frozen=True, slots=True)
class UserRateLimiter:
    """Rate limiter of messages that request an answer, per user and per channel.

    Decisions and answers by button or form count as messages. It counts the rows in the inbox, so that all workers
    share the limits.

    Attributes:
        user: limit of each user's messages, in all places.
        channel: limit of the messages in each place, such as a channel with its threads or a DM.
    """

    user: RateLimit | None = None
    channel: RateLimit | None = None

    def __bool__(self) -> bool:
        return self.user is not None or self.channel is not None

    async def find_denial(
        self, connection: AsyncConnection, *, author: str, place: str, sent_at: float | None = None
    ) -> RateLimitDenial | None:
        """Return the denial of an author's message at a place; None if there is room: see `get_limit_end`."""
        until = await self.get_limit_end(connection, author=author, place=place, sent_at=sent_at)
        return None if until is None else RateLimitDenial(until)

    async def get_limit_end(
        self, connection: AsyncConnection, *, author: str, place: str, sent_at: float | None = None
    ) -> float | None:
        """Return the time until which an author's messages at a place exceed a rate limit.

        The caller stores the message in the same transaction. Until its end, other messages of the author and at the
        place wait: on PostgreSQL for an advisory lock, on SQLite because one transaction writes at a time.

        Messages count that were sent less than `RateLimit.seconds` before or after this one. So a denied message, which
        is not stored, is denied again at each delivery.

        Args:
            author: the author, as in `inbox.author`.
            place: the place, as in `inbox.place`.
            sent_at: as `InboxMessage.sent_at`; None for now.

        Returns:
            Seconds since the epoch, the later time if both limits are reached; None if no limit is reached.
        """
        at = time.time() if sent_at is None else sent_at
        until = list[float]()
        limits = (
            (self.user, f"rate of {author}", inbox.c.author == author),
            (self.channel, f"rate of {place}", inbox.c.place == place),
        )
        for rate, lock, is_theirs in limits:
            if rate is None:
                continue
            if connection.dialect.name == "postgresql":
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(lock, 0))))
            is_near = (inbox.c.sent_at > at - rate.seconds) & (inbox.c.sent_at < at + rate.seconds)
            newest = (
                sa.select(inbox.c.sent_at).where(is_theirs, is_near, _counts(inbox)).order_by(inbox.c.sent_at.desc())
            )
            oldest = (await connection.execute(newest.offset(rate.max_count - 1).limit(1))).scalar_one_or_none()
            if oldest is not None:
                until.append(oldest + rate.seconds)
        return max(until) if until else None


NO_RATE_LIMITS = UserRateLimiter()


def _counts(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an inbox row counts: a person has requested an answer.

    A row of the kind `decision` continues a run; each decision before it has a row of its own.
    """
    uncounted = (
        *(InboxOutcome.UNADDRESSED, InboxOutcome.COMMAND, InboxOutcome.RESET, InboxOutcome.RATE_LIMITED),
        *(InboxOutcome.PENDING, InboxOutcome.HANDLED),
    )
    return sa.or_(table.c.outcome.is_(None), table.c.outcome.not_in(uncounted)) & (table.c.kind != "decision")


class DenialNoticeStore:
    """Store of the time when each person may next be notified of a denial, shared by all workers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_notice(
        self, person: str, kind: DenialKind, *, until: float | None = None, sent_at: float | None = None
    ) -> bool:
        """Return whether to notify a person of a denial now.

        If so, it stores that no further notice is due for messages sent before `until`.

        Args:
            person: `platform:id`.
            kind: the kind of the denial; each kind has its own notice.
            until: when the next notice may follow, in seconds since the epoch; None for an hour from now.
            sent_at: as `InboxMessage.sent_at` of the denied message; None for now.

        Raises:
            StoreError: the database cannot be used.
        """
        now = time.time()
        row = {
            "user_key": person,
            "kind": kind,
            "expires_at": now + NOTICE_INTERVAL_SECONDS if until is None else until,
        }
        async with self._database.write() as connection:
            insert = build_insert(connection.dialect.name, denial_notices).values(row)
            upsert = insert.on_conflict_do_update(
                index_elements=list(denial_notices.primary_key),
                set_={"expires_at": insert.excluded.expires_at},
                where=denial_notices.c.expires_at <= (now if sent_at is None else sent_at),
            )
            return (await connection.execute(upsert.returning(denial_notices.c.user_key))).first() is not None


def is_notice_expired() -> sa.ColumnElement[bool]:
    """Return the SQL condition that a row in `denial_notices` can be deleted: see `EXPIRED_NOTICE_SECONDS`."""
    return denial_notices.c.expires_at < time.time() - EXPIRED_NOTICE_SECONDS
