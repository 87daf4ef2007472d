"""Of several workers, one leads where only one may."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from core.concurrency import event_loop
from core.errors import StoreError
from core.secret_redaction import traced
from core.store.database import Database
from core.store.schema import channels, workers
from core.store.upsert import insert_new
from core.workers.lease import GIVE_UP_SECONDS, Lease

log = logging.getLogger(__name__)

#: Seconds between two looks at who leads.
LOOK = 2.0

#: For how many looks a part is left to those who lead fewer.
COURTESY = 2

#: Seconds for which a worker takes nothing that it has given up; and for which it asks no other for anything then.
REST, LONG_REST = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class _Part:
    """How a part stands.

    Attributes:
        leader: who leads it; none if nobody does.
        wanted: who asks for it, if he is there.
    """

    id: int
    leader: str | None
    wanted: str | None


class Leadership:
    """Which of all workers a channel hears through.

    It hears in parts, each through one worker for as long as its lease lasts, and then through another one. They are
    shared out evenly: who leads fewer than his share asks one for a part who leads more, and gets it.

    For a moment two may think that they lead, when one of them cannot reach the database: what both hear is kept once.

    Args:
        name: the channel's.
    """

    def __init__(self, database: Database, lease: Lease, name: str) -> None:
        self._database = database
        self._lease = lease
        self._name = name
        self._free = Counter[int]()  # for how many looks a part has had no leader
        self._rests = 0.0  # when this worker takes parts again that are free
        self._asks = 0.0  # and when it asks for others

    @property
    def is_vacant(self) -> bool:
        """Whether nobody led one of the parts when it was last looked."""
        return bool(self._free)

    def part_name(self, part: int, count: int) -> str:
        """What a part goes by, of so many."""
        return self._name if count == 1 else f"{self._name}:{part}/{count}"

    async def count(self) -> int | None:
        """Into how many parts those divide the channel who lead now; nothing if nobody does.

        Raises:
            StoreError: the database cannot be read.
        """
        led = sa.select(channels.c.name).where(self._ours(), ~self._lease.is_gone(channels.c.leader))
        async with self._database.read() as connection:
            names = (await connection.execute(led)).scalars().all()
        counts = [int(name.rpartition("/")[2]) if "/" in name else 1 for name in names]
        return max(counts, default=None)

    async def changes(self, count: int = 1) -> AsyncGenerator[frozenset[int], None]:
        """Which parts this worker leads: at once, and then whenever that changes. What it is not to lead any more is
        another one's as soon as the next change is asked for.

        Args:
            count: how many parts there are.
        """
        led: frozenset[int] | None = None
        while True:
            try:
                found = await self._seek(count)
            except StoreError as error:
                log.warning("cannot see who hears %s: %s", self._name, traced(error))
                found = led or frozenset()
            if found != led:
                dropped, led = (led or frozenset()) - found, found
                yield led
                await self._hand_over(dropped, count)
            await asyncio.sleep(LOOK)

    async def give_up(self, parts: Collection[int] | None = None, count: int = 1) -> None:
        """Let others lead.

        Args:
            parts: which this one cannot lead; by default, it leads no more at all.
            count: of how many.
        """
        ours = self._ours() & (channels.c.leader == self._lease.worker)
        if parts is not None:
            self._rests, self._asks = event_loop.now() + REST, event_loop.now() + LONG_REST
            ours &= channels.c.name.in_([self.part_name(part, count) for part in parts])
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS), self._database.write() as connection:
                await connection.execute(sa.update(channels).where(ours).values(leader=None))
        except (StoreError, TimeoutError) as error:
            log.warning("%s is heard by nobody until this worker's lease ends: %s", self._name, traced(error))

    async def admitted(self, part: int, count: int, seconds: float) -> None:
        """Wait until nobody else has been admitted to this part for so many seconds. Where the database cannot tell,
        everybody is.
        """
        this = channels.c.name == self.part_name(part, count)
        try:
            while True:
                is_free = channels.c.free_at.is_(None) | (channels.c.free_at <= self._database.now)
                async with self._database.write() as connection:
                    taken = sa.update(channels).where(this, is_free).values(free_at=self._database.now + seconds)
                    if (await connection.execute(taken)).rowcount:
                        return
                    left = sa.select(channels.c.free_at - self._database.now).where(this)
                    wait = (await connection.execute(left)).scalar_one_or_none()
                if wait is None:
                    return
                await asyncio.sleep(min(max(wait, 0.05), seconds))
        except StoreError as error:
            log.warning("%s: it cannot be seen whose turn it is: %s", self._name, traced(error))

    async def _seek(self, count: int) -> frozenset[int]:
        """Lead what nobody else does and is this worker's share; what it leads then."""
        parts, others = await self._look(count)
        mine = {part.id for part in parts if part.leader == self._lease.worker}
        least, rest = divmod(count, others + 1)
        share, surplus = least + bool(rest), len(mine) - least
        wanted = [part.id for part in parts if part.id in mine and part.wanted not in (None, self._lease.worker)]
        if surplus > 0 and wanted:
            return frozenset(mine.difference(wanted[:surplus]))
        free = [part.id for part in parts if part.leader is None]
        self._free = Counter({part: self._free[part] + 1 for part in free})
        patient = [part for part in free if self._free[part] > COURTESY]
        wished = [*patient, *(part for part in free if part not in patient)]
        if take := wished[: max(share - len(mine), len(patient))] if event_loop.now() >= self._rests else []:
            mine |= await self._take(take, count)
        elif not free and len(mine) < least and event_loop.now() >= self._asks:
            await self._ask(parts, count, least - len(mine))
        return frozenset(mine)

    async def _look(self, count: int) -> tuple[list[_Part], int]:
        """How the parts stand, and how many other workers there are."""
        names = [self.part_name(part, count) for part in range(count)]
        row = channels.c
        stands = sa.select(
            row.name, row.leader, self._lease.is_gone(row.leader), row.wanted, self._lease.is_gone(row.wanted)
        ).where(row.name.in_(names))
        alive = sa.select(sa.func.count()).where(
            workers.c.lease > self._database.now, workers.c.id != self._lease.worker
        )
        async with self._database.read() as connection:
            found = {name: values for name, *values in (await connection.execute(stands)).all()}
            others = (await connection.execute(alive)).scalar_one()
        if missing := [name for name in names if name not in found]:
            async with self._database.write() as connection:
                for name in missing:
                    await insert_new(connection, channels, {"name": name})
        parts = []
        for id_, name in enumerate(names):
            leader, is_gone, wanted, is_away = found.get(name, (None, True, None, True))
            # what is this worker's by name nobody has taken: its own lease may have been lengthened late
            is_led = leader == self._lease.worker or not is_gone
            parts.append(_Part(id_, leader if is_led else None, None if is_away else wanted))
        return parts, others

    async def _take(self, parts: Iterable[int], count: int) -> set[int]:
        """Lead those that nobody leads; which of them this worker does then."""
        taken = set()
        async with self._database.write() as connection:
            for part in parts:
                free = (channels.c.name == self.part_name(part, count)) & self._lease.is_gone(channels.c.leader)
                lead = sa.update(channels).where(free).values(leader=self._lease.worker, wanted=None)
                if (await connection.execute(lead)).rowcount:
                    taken.add(part)
        return taken

    async def _ask(self, parts: Collection[_Part], count: int, most: int) -> None:
        """Ask those for a part who lead the most, unless this worker has asked for as many."""
        if sum(part.wanted == self._lease.worker for part in parts) >= most:
            return
        led = Counter(part.leader for part in parts)
        ask = max((part for part in parts if part.wanted is None), key=lambda part: led[part.leader], default=None)
        if ask is not None:
            this = (channels.c.name == self.part_name(ask.id, count)) & self._lease.is_gone(channels.c.wanted)
            async with self._database.write() as connection:
                await connection.execute(sa.update(channels).where(this).values(wanted=self._lease.worker))

    async def _hand_over(self, parts: Collection[int], count: int) -> None:
        """Let those lead who have asked for it."""
        names = [self.part_name(part, count) for part in parts]
        ours = channels.c.name.in_(names) & (channels.c.leader == self._lease.worker)
        if not parts:
            return
        try:
            async with self._database.write() as connection:
                await connection.execute(sa.update(channels).where(ours).values(leader=channels.c.wanted, wanted=None))
        except StoreError as error:
            log.warning("%s: what another worker is to hear nobody hears for now: %s", self._name, traced(error))

    def _ours(self) -> sa.ColumnElement[bool]:
        return (channels.c.name == self._name) | channels.c.name.startswith(f"{self._name}:", autoescape=True)
