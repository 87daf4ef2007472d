"""Gaps: what was said while the bot could not hear it, or could not keep it, is found by looking back.

Until when all that was said has been heard is kept in the database, so that the next process knows where to begin.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from weakref import WeakValueDictionary

from channels.intake.handler import MOMENT, Call
from channels.intake.pending import Missed, said_at, unheard
from channels.settings import Bounds
from core.concurrency import event_loop
from core.concurrency.retry import persist, retried
from core.concurrency.tasks import abreast
from core.errors import StoreError
from core.inbox.watermarks import Place, Places
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds by which a look goes back further than the gap: clocks differ, and what was heard may not be kept yet.
MARGIN = 60.0

#: Seconds for which nobody has spoken in a conversation that counts as over: what is said there then, and does not call
#: the bot, is left.
ALIVE = 7 * 86_400.0

#: The most places, and the most conversations, that one look goes to: those in which was spoken last.
MOST_PLACES = 500

#: At how many places is looked at once: each takes several calls and questions to the database, one after the other.
#: When so many could not be looked into, it is not they that are at fault, and the others wait for the next try.
AT_ONCE = 8

#: The most seconds that one look may take; what it has not come to by then is left.
LOOK_SECONDS = 900.0

#: Seconds to wait before what could not be looked for is tried again, the last one from then on.
PAUSES = (0.5, 2.0, 5.0, 15.0, 30.0)

#: The same for what could not be kept: soon, for another worker may keep what is said next as soon as that can be done.
KEEP_PAUSES = (*(0.1,) * 50, *(0.25,) * 40, *PAUSES)

#: The most seconds for which a message that was just said waits for those that were said before it and not heard.
BEHIND_SECONDS = 15.0

#: How many messages that could not be kept are remembered; more of them are looked for, unless nothing is.
MOST_MISSED = 1_000

#: Seconds between two notes of until when all has been heard.
KEEP_SECONDS = 10.0

#: Seconds that the last note may take.
LAST_SECONDS = 2.0


#: Begins a look since a time (in seconds since the epoch): what was said in a place; or raises `ParleyError`.
Look = Callable[[float], Callable[[Place], Awaitable[list[Call]]]]


class Gaps:
    """What a channel has not heard.

    Args:
        channel: the channel's name.
        take: takes in a message; raises `StoreError` if it cannot be kept.
        heard_at: the time of the channel's last sign of life (seconds since the epoch); 0 before the first.
        part: what of the channel it is about goes by, if it is not the whole: until when that has been heard is kept
            by itself.
        covers: whether a place of the channel belongs to it.
        holds: whether what is just said waits for a look at its place, as long as there is a gap. That is for a
            channel that one process hears: another one would hold up nothing of what it hears.
    """

    def __init__(
        self,
        channel: str,
        places: Places,
        bounds: Bounds,
        *,
        take: Callable[[Call], Awaitable[None]],
        look: Look,
        heard_at: Callable[[], float],
        holds: bool,
        part: str = "",
        covers: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._channel = channel
        self._part = part or channel
        self._covers = covers
        self._places = places
        self._bounds = bounds
        self._take = take
        self._look = look
        self._heard_at = heard_at
        self._holds = holds
        self._missed = Missed()
        self._since = inf  # the beginning of what is to be looked for
        self._looking_since = inf
        self._kept: float | None = None  # until when all was heard, as it is noted
        self._opened = asyncio.Event()
        self._unkept = asyncio.Event()
        self._began = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._queues = WeakValueDictionary[str, asyncio.Lock]()  # by session: what is heard while another one waits
        self._first = dict[str, asyncio.Task[None]]()  # looks at places in which somebody speaks while there is a gap

    async def start(self) -> None:
        """Go to work; first of all, have looked for what was said since the last process heard.

        Raises:
            StoreError: the database does not say since when that is.
        """
        heard_at = await retried(lambda: self._places.heard_at(self._part), what=f"the gap of {self._part}")
        if heard_at is not None:
            self.open(heard_at)
        self._kept = heard_at or 0.0
        what = f"{self._channel}: what was not heard cannot be caught up with yet"
        works = (
            persist(self._take_missed, self._unkept, KEEP_PAUSES, what=what),
            persist(self._look_back, self._opened, PAUSES, what=what),
            self._keep_up(),
        )
        for work in works:
            self._tasks.append(asyncio.create_task(work, name=f"gaps of {self._channel}"))
        self._began.set()

    async def stop(self) -> None:
        """Look no further. What was not looked for is left to the next process."""
        self._began.clear()
        tasks = [*self._tasks, *self._first.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_SECONDS)  # one may be at a database that hangs
            self._tasks.clear()
            self._first.clear()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._keep()
        except (StoreError, TimeoutError) as error:
            log.warning("%s: until when all was heard cannot be kept: %s", self._channel, traced(error))

    def open(self, since: float) -> None:
        """What was said since then (seconds since the epoch) may not have been heard."""
        if self._bounds.hours:
            self._since = min(since, self._since)
            self._first = {place: task for place, task in self._first.items() if not task.done()}
            self._opened.set()

    async def hear(self, call: Call) -> None:
        """Take in what was just said, behind what was said before it in its place and was not heard or kept yet. A
        command waits for nothing that was not heard.

        Raises:
            Exception: it is not kept yet, and will be as soon as that can be done.
        """
        with self.holding(call):
            if call.command is None:
                until = event_loop.now() + BEHIND_SECONDS
                async with self._queues.setdefault(call.inbound.session_id, asyncio.Lock()):
                    await self._look_before({call.inbound.place}, until)
                    await self._take_behind(call)
            else:
                await self._take_behind(call)
        if self._missed:  # the database is back
            self._unkept.set()

    @contextmanager
    def seeing(self, at: float) -> Iterator[None]:
        """It is seen what there is to do about a message that was said then (seconds since the epoch), for as long as
        this is entered. What is broken off is looked for.
        """
        with self._missed.seeing(at):
            try:
                yield
            except asyncio.CancelledError:
                self.open(at)
                raise

    @contextmanager
    def holding(self, call: Call) -> Iterator[None]:
        """It is on its way to `hear`, for as long as this is entered: as `seeing`; and `changed` is minded."""
        with self.seeing(said_at(call)), self._missed.holding(call):
            yield

    def missed(self, call: Call) -> None:
        """A message was heard and could not be kept: it is kept as soon as that can be done."""
        if len(self._missed) < MOST_MISSED or not self._bounds.hours:
            self._missed.add(call)
            self._unkept.set()
        else:
            self.open(said_at(call))

    def changed(self, event_key: str, text: str | None) -> None:
        """A message was edited, or deleted (None): what is not kept yet of it is kept as it is now, or not at all."""
        self._missed.change(event_key, text)

    async def settled(self, event_key: str) -> None:
        """Return when a message is not being kept: what it says now may be noted, and does not find nothing."""
        async with self._missed.turn(event_key):
            pass

    async def _take_behind(self, call: Call) -> None:
        """Take it in, behind what was said before it in its session and could not be kept. What never can be kept holds
        it up no more.

        Raises:
            Exception: it is not kept yet, and will be as soon as that can be done.
        """
        try:
            for older in self._missed.before(call):
                try:
                    await self._take_one(replace(older, is_late=True))
                except Exception as error:
                    if older.holds_up and isinstance(error, StoreError) and error.retryable:
                        raise
            await self._take_one(call)
        except Exception:
            self.missed(call)
            raise

    async def _take_one(self, call: Call) -> None:
        async with self._missed.turn(call.inbound.event_key):
            if (now := self._missed.now(call)) is not None:
                await self._take(now)
            self._missed.drop(call)

    @property
    def _is_open(self) -> bool:
        return min(self._since, self._looking_since) != inf

    async def _look_before(self, places: Collection[str], until: float) -> None:
        """If there is a gap, look first at these places, so that what is taken in next goes behind what was said there
        before it; but wait for that no longer than until then (the loop's time).
        """
        if not (self._holds and places and (self._is_open or not self._began.is_set())):
            return
        try:
            async with asyncio.timeout_at(until):
                await self._began.wait()
                if looks := [self._look_first(place) for place in places if self._is_open]:
                    await asyncio.wait(looks)
        except TimeoutError:
            log.info("%s: what is said is not held up any longer by what was said before", self._channel)

    def _look_first(self, place_id: str) -> asyncio.Task[None]:
        """The look at a place before its turn comes, once for all who wait for it; none of them ends it."""
        looking = self._first.get(place_id)
        if looking is None:
            since = self._bounded(min(self._since, self._looking_since))
            work = self._look_at(place_id, since)
            looking = self._first[place_id] = asyncio.create_task(work, name=f"gap of {place_id}")
        return looking

    async def _look_at(self, place_id: str, since: float) -> None:
        try:  # where the database is away, what waits for this look would be kept before what it finds
            await retried(lambda: self._catch_up(since, only=place_id), what=f"a look at {place_id}")
        except Exception as error:  # its turn comes
            self._first.pop(place_id, None)
            log.info("%s: a place cannot be looked into first: %s", self._channel, traced(error))

    def _bounded(self, since: float) -> float:
        """From when on to look for what was not heard since then."""
        return max(since - MARGIN, time.time() - self._bounds.hours * 3600)

    async def _take_missed(self) -> None:
        """Take in what could not be kept, in its order. What cannot be kept for now holds up what was said behind it in
        its session; what never can be, by its own fault, holds up nothing.
        """
        places = {call.inbound.place for call in self._missed.calls if call.command is None}
        await self._look_before(places, event_loop.now() + BEHIND_SECONDS)
        failure: Exception | None = None
        held = set[str]()
        for call in self._missed.calls:
            inbound = call.inbound
            if inbound.session_id in held:
                continue
            if inbound.sent_at < time.time() - max(1.0, self._bounds.hours) * 3600:
                log.error("%s: a message is lost, as it could not be kept for too long", self._channel)
                self._missed.drop(call)
                continue
            try:
                await self._take_one(replace(call, is_late=True))
            except Exception as error:
                failure = error
                if call.holds_up and isinstance(error, StoreError) and error.retryable:
                    await self._places.heard_at(self._part)  # which fails as well, if nothing can be kept for now
                    held.add(inbound.session_id)
        if failure is not None:
            raise failure

    async def _look_back(self) -> None:
        if self._since == inf:
            return
        if len(self._missed) >= MOST_MISSED:  # what is found and cannot be kept either would be looked for at once
            raise StoreError("what was heard cannot be kept, and is as much as can be remembered")
        since = self._looking_since = self._since
        self._since = inf
        try:
            async with asyncio.timeout(LOOK_SECONDS) as limit:
                found = await self._catch_up(self._bounded(since))
            log.info("%s: looked back over %.0f s: %d messages found", self._channel, time.time() - since, found)
        except BaseException as error:
            if not (isinstance(error, TimeoutError) and limit.expired()):
                self._since = min(since, self._since)
                raise
            log.warning("%s: looking back took too long; what was not found by now is left", self._channel)
        finally:
            self._looking_since = inf

    async def _catch_up(self, since: float, *, only: str | None = None) -> int:
        """Take in what was said since then and not heard; how many messages. A place that cannot be looked into keeps
        no other one from it.

        Args:
            only: the one place to look at.

        Raises:
            Exception: why one of them could not be looked into.
        """
        places = await self._places.served(self._channel, since=since - ALIVE, limit=MOST_PLACES)
        places = [place for place in places if self._covers(place.id) and only in (None, place.id)]
        if only is not None and not places:
            return 0
        alive = {session for place in places for session in place.sessions}
        begun = {place.id: place.begun_at for place in places}
        edited = max(since - MOMENT, time.time() - self._bounds.hours * 3600)  # to call the bot, and not heard either
        look, found, failures = self._look(edited), 0, list[Exception]()

        async def take_in(place: Place) -> None:
            nonlocal found
            try:
                said = await look(place)
            except Exception as error:
                failures.append(error)
                if len(failures) >= AT_ONCE:
                    raise
                return
            new = await unheard(self._places, said, alive, begun, since=since)
            more = max(0, found + len(new) - self._bounds.messages)
            if more:
                log.warning("%s: %d messages more than are caught up with", self._channel, more)
            newest = new[more:]
            found += len(newest)
            for call in newest:
                with suppress(Exception):  # it is kept later
                    await self._take_behind(replace(call, is_late=True))

        await abreast(take_in, places, AT_ONCE)
        if failures:
            raise failures[0]
        return found

    async def _keep_up(self) -> None:
        while True:
            try:
                await self._keep()
            except StoreError as error:
                log.warning("%s: until when all was heard cannot be kept: %s", self._channel, error)
            await asyncio.sleep(KEEP_SECONDS)

    async def _keep(self) -> None:
        """Note until when all has been heard, unless that is noted already, or it is not known from when on."""
        until = min(self._heard_at(), self._since, self._looking_since, self._missed.since)
        if self._kept is not None and until and until != self._kept:
            await self._places.keep_heard_at(self._part, until)
            self._kept = until
