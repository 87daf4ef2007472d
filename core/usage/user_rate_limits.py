"""Rate limits per person and place, and the notices about them.

The inbox is the count: all workers count the same, and a message that is delivered twice counts once. A person is
notified once per period.
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

from core.store.database import Database
from core.store.schema import inbox, refusals
from core.store.upsert import insert_of

SECONDS: Mapping[str, float] = {"m": 60.0, "h": 3600.0, "d": 86_400.0}

_RATE = re.compile(r"(?P<most>[1-9]\d{0,5})\s*/\s*(?P<unit>[mhd])")

#: What is noted of a message that was one too many: it is not answered, and none of its words are kept.
LIMITED = "limited"

#: Why a person gets no answer: no access, too many questions, or too many commands.
Kind = Literal["door", "rate", "command"]

#: Seconds for which somebody is not told again that he may not speak.
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Rate:
    """No more than so many within so many seconds."""

    most: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Read one: `20/h`; `m` is a minute, `d` a day.

        Raises:
            ValueError: it is none.
        """
        found = _RATE.fullmatch(text.strip())
        if found is None:
            raise ValueError("it must be a number and a time, such as 20/h (m is a minute, h an hour, d a day)")
        return cls(int(found["most"]), SECONDS[found["unit"]])


@dataclass(frozen=True, slots=True)
class Limited:
    """The result of a message or command over the limit.

    Attributes:
        until: when (seconds since the epoch) its author may try again.
    """

    until: float

    @property
    def minutes(self) -> int:
        """Minutes until then, at least 1."""
        return max(1, ceil((self.until - time.time()) / 60))


#: Commands that one person may give to one worker.
COMMAND_RATE = Rate(60, 60.0)


class CommandLimiter:
    """Fixed window of the commands that each person gives to this worker.

    It counts in memory: slash commands have no row in the inbox, and a refused command must cost less than an accepted
    one.
    """

    def __init__(self, rate: Rate = COMMAND_RATE) -> None:
        self._rate = rate
        self._window = 0
        self._counts = Counter[str]()

    def count(self, person: str) -> Limited | None:
        """Count a command of a person; over the limit, return the end of the window."""
        window = int(time.time() // self._rate.seconds)
        if window != self._window:
            self._window, self._counts = window, Counter()
        self._counts[person] += 1
        return Limited((window + 1) * self._rate.seconds) if self._counts[person] > self._rate.most else None


@dataclass(frozen=True, slots=True)
class Rates:
    """Those that hold; none where it is not given."""

    person: Rate | None = None
    place: Rate | None = None

    def __bool__(self) -> bool:
        return self.person is not None or self.place is not None

    async def spent_until(self, connection: AsyncConnection, *, author: str, place: str) -> float | None:
        """When (seconds since the epoch) whoever speaks may ask again; None if he may now.

        In a transaction that keeps the message if he may: who else speaks for the same person, or at the same place,
        waits until its end. SQLite: one transaction writes at a time.
        """
        now, until = time.time(), list[float]()
        asked = (
            (self.person, f"rate of {author}", inbox.c.author == author),
            (self.place, f"rate of {place}", inbox.c.place == place),
        )
        for rate, lock, whose in asked:
            if rate is None:
                continue
            if connection.dialect.name == "postgresql":
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(lock, 0))))
            counted = whose & (inbox.c.accepted_at > now - rate.seconds) & _is_answered(inbox)
            newest = sa.select(inbox.c.accepted_at).where(counted).order_by(inbox.c.accepted_at.desc())
            oldest = (await connection.execute(newest.offset(rate.most - 1).limit(1))).scalar_one_or_none()
            if oldest is not None:
                until.append(oldest + rate.seconds)
        return max(until) if until else None


#: None.
BOUNDLESS = Rates()


def _is_answered(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether a message asks, or has asked, for an answer that somebody wants of his own accord."""
    said_for_others = ("overheard", "command", "reset", LIMITED)
    return sa.or_(table.c.outcome.is_(None), table.c.outcome.not_in(said_for_others)) & (table.c.kind != "approval")


class Refusals:
    """The `refusals` table: until when each person is not told again, over all workers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_to_be_told(self, person: str, kind: Kind, *, until: float | None = None) -> bool:
        """Whether somebody is to be told now; he counts as told then.

        Args:
            person: the platform's name and the person's id, with a colon in between.
            until: he is not told again before (seconds since the epoch); an hour from now if it is not given.

        Raises:
            StoreError: it is not known.
        """
        now = time.time()
        row = {"person": person, "kind": kind, "until": now + HOUR if until is None else until}
        async with self._database.write() as connection:
            insert = insert_of(connection.dialect.name, refusals).values(row)
            told = insert.on_conflict_do_update(
                index_elements=list(refusals.primary_key),
                set_={"until": insert.excluded.until},
                where=refusals.c.until <= now,
            )
            return (await connection.execute(told.returning(refusals.c.person))).first() is not None


def is_over() -> sa.ColumnElement[bool]:
    """Whether a row says nothing any more."""
    return refusals.c.until < time.time()
