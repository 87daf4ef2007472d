"""Gaps: what was said while the bot could not hear it, or could not keep it, is found by looking back.

Until when all that was said has been heard is kept in the database, so that the next process knows where to begin.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import chain, repeat
from math import inf

from channels.intake import Call
from core.errors import ParleyError, StoreError
from core.places import Place, Places
from core.secrets import traced

log = logging.getLogger(__name__)

#: Seconds by which a look goes back further than the gap: clocks differ, and what was heard may not be kept yet.
MARGIN = 60.0

#: Seconds for which nobody has spoken in a conversation that counts as over: what is said there then, and does not call
#: the bot, is left.
ALIVE = 7 * 86_400.0

#: The most places, and the most conversations, that one look goes to: those in which was spoken last.
MOST_PLACES = 200

#: The most seconds that one look may take; what it has not come to by then is left.
LOOK_SECONDS = 900.0

#: Seconds to wait before what could not be looked for or kept is tried again, the last one from then on.
PAUSES = (0.5, 2.0, 5.0, 15.0, 30.0)

#: How many messages that could not be kept are remembered; more of them are looked for.
MOST_MISSED = 1_000

#: Seconds between two notes of until when all has been heard.
KEEP_SECONDS = 10.0

#: Seconds that the last note may take.
LAST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far is looked back.

    Attributes:
        hours: what was said longer ago is left; with 0, nothing is looked for.
        messages: the most that are answered of what one look finds, the newest of each place.
    """

    hours: float = 24.0
    messages: int = 100


#: Reads what was said in the places since a time (seconds since the epoch), place by place. Raises `ParleyError` if
#: that cannot be done now.
Look = Callable[[Sequence[Place], float], AsyncGenerator[list[Call]]]


class Gaps:
    """What a channel has not heard.

    Args:
        channel: the channel's name.
        take: takes in a message; raises `StoreError` if it cannot be kept.
        heard_at: the time of the channel's last sign of life (seconds since the epoch); 0 before the first.
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
    ) -> None:
        self._channel = channel
        self._places = places
        self._bounds = bounds
        self._take = take
        self._look = look
        self._heard_at = heard_at
        self._missed: dict[str, Call] = {}
        self._since = inf  # the beginning of what is to be looked for
        self._looking_since = inf
        self._kept = 0.0
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Go to work; first of all, have looked for what was said since the last process heard.

        Raises:
            StoreError: the database does not say since when that is.
        """
        heard_at = await self._places.heard_at(self._channel)
        if heard_at is not None:
            self._kept = heard_at
            self.open(heard_at)
        for work in (self._close_all(), self._keep_up()):
            self._tasks.append(asyncio.create_task(work, name=f"gaps of {self._channel}"))

    async def stop(self) -> None:
        """Look no further. What was not looked for is left to the next process."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            self._tasks.clear()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._keep()
        except (StoreError, TimeoutError) as error:
            log.warning("%s: until when all was heard cannot be kept: %s", self._channel, traced(error))

    def open(self, since: float) -> None:
        """What was said since then (seconds since the epoch) may not have been heard."""
        if self._bounds.hours:
            self._since = min(since, self._since)
            self._wake.set()

    def missed(self, call: Call) -> None:
        """A message was heard and could not be kept: it is kept as soon as that can be done."""
        if len(self._missed) < MOST_MISSED:
            self._missed[call.inbound.event_key] = call
            self._wake.set()
        else:
            self.open(call.inbound.sent_at)

    async def _close_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for pause in chain(PAUSES, repeat(PAUSES[-1])):
                if await self._close():
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
                self._wake.clear()

    async def _close(self) -> bool:
        """Close all gaps; false if that is to be tried again."""
        is_done = True
        for work in (self._take_missed, self._look_back):
            try:
                await work()
            except Exception as error:
                reason = str(error) if isinstance(error, ParleyError) else traced(error)
                log.warning("%s: what was not heard cannot be caught up with yet: %s", self._channel, reason)
                is_done = False
        return is_done

    async def _take_missed(self) -> None:
        """Take in what could not be kept, in its order; what cannot be kept by its own fault holds up no other."""
        failure: StoreError | None = None
        for call in sorted(self._missed.values(), key=lambda call: call.inbound.sent_at):
            inbound = call.inbound
            if inbound.sent_at < time.time() - max(1.0, self._bounds.hours) * 3600:
                log.error("%s: a message is lost, as it could not be kept for too long", self._channel)
            else:
                try:
                    await self._take(replace(call, is_late=True))
                except StoreError as error:
                    await self._places.heard_at(self._channel)  # which fails as well, if it is not the message
                    failure = error
                    continue
            self._missed.pop(inbound.event_key, None)
        if failure is not None:
            raise failure

    async def _look_back(self) -> None:
        if self._since == inf:
            return
        since = self._looking_since = self._since
        self._since = inf
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                found = await self._catch_up(max(since - MARGIN, time.time() - self._bounds.hours * 3600))
            log.info("%s: looked back over %.0f s: %d messages found", self._channel, time.time() - since, found)
        except TimeoutError:
            log.warning("%s: looking back took too long; what was not found by now is left", self._channel)
        except BaseException:
            self._since = min(since, self._since)
            raise
        finally:
            self._looking_since = inf

    async def _catch_up(self, since: float) -> int:
        """Take in what was said since then and not heard.

        Returns:
            How many messages.
        """
        places = await self._places.served(self._channel, since=since - ALIVE, limit=MOST_PLACES)
        alive = {session for place in places for session in place.sessions}
        begun = {place.id: place.begun_at for place in places}
        found = 0
        async with aclosing(self._look(places, since)) as looked:
            async for calls in looked:
                unheard = await self._unheard(calls, alive, begun)
                room = self._bounds.messages - found
                if len(unheard) > room:
                    log.warning("%s: %d messages more than are caught up with", self._channel, len(unheard) - room)
                for call in unheard[max(0, len(unheard) - room) :]:
                    found += 1
                    try:
                        await self._take(replace(call, is_late=True))
                    except StoreError:
                        self.missed(call)
        return found

    async def _unheard(self, calls: Sequence[Call], alive: set[str], begun: Mapping[str, float]) -> list[Call]:
        """Those that are to be taken in, in the order in which they were said: neither known, nor said before the bot
        spoke there, nor of a conversation that was started over since or has been silent for long.

        Args:
            alive: the conversations that are not silent; those in which the bot is called become so.
            begun: since when the bot speaks in each place.
        """
        if not calls:
            return []
        known = await self._places.known(call.inbound.event_key for call in calls)
        over = await self._places.started_over_at({call.inbound.session_id for call in calls})
        unheard = []
        for call in sorted(calls, key=lambda call: call.inbound.sent_at):
            inbound = call.inbound
            if call.is_called:
                alive.add(inbound.session_id)
            after = max(over.get(inbound.session_id, 0.0), begun.get(inbound.place, inf))
            if inbound.session_id in alive and inbound.event_key not in known and inbound.sent_at >= after:
                unheard.append(call)
        return unheard

    async def _keep_up(self) -> None:
        while True:
            try:
                await self._keep()
            except StoreError as error:
                log.warning("%s: until when all was heard cannot be kept: %s", self._channel, error)
            await asyncio.sleep(KEEP_SECONDS)

    async def _keep(self) -> None:
        """Note until when all has been heard, unless that is noted already."""
        missed = (call.inbound.sent_at for call in self._missed.values())
        until = min(self._heard_at(), self._since, self._looking_since, *missed)
        if until and until != self._kept:
            await self._places.keep_heard_at(self._channel, until)
            self._kept = until
