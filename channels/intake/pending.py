"""What was said, and is not kept yet: it was not heard, is under way, or could not be kept."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from weakref import WeakValueDictionary

from channels.intake.handler import Call
from core.inbox.watermarks import Places

#: How many changes of what is not kept yet are remembered.
_MOST_CHANGES = 1_000


class Missed:
    """Calls that are not kept yet, as they are to be taken: those are not forgotten that were edited or deleted by
    then.
    """

    def __init__(self) -> None:
        self._calls = dict[str, Call]()  # those that could not be kept, by their keys
        self._held = dict[str, Call]()  # those that are being taken in
        self._seen = list[float]()  # when those were said, and what is not known yet to be a call
        self._changed = dict[str, str | None]()  # what they say now; none, if they are deleted
        self._turns = WeakValueDictionary[str, asyncio.Lock]()  # by their keys

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def since(self) -> float:
        """When the first was said of all that is not kept (seconds since the epoch); infinite, if there is nothing."""
        return min((*map(said_at, self._calls.values()), *self._seen), default=inf)

    @property
    def calls(self) -> list[Call]:
        """Those that could not be kept, in the order in which they were said."""
        return sorted(self._calls.values(), key=said_at)

    def add(self, call: Call) -> None:
        """It could not be kept."""
        if (now := self.now(call)) is not None:
            self._calls[call.inbound.event_key] = now

    def drop(self, call: Call) -> None:
        """It is kept, or given up."""
        self._calls.pop(call.inbound.event_key, None)

    def now(self, call: Call) -> Call | None:
        """The call as its author has it now; none, if he has deleted it."""
        key = call.inbound.event_key
        if key not in self._changed:
            return call
        text = self._changed[key]
        return None if text is None else replace(call, inbound=replace(call.inbound, text=text))

    def change(self, event_key: str, text: str | None) -> None:
        """Its author has edited it, or deleted it (None)."""
        if not any(event_key in known for known in (self._calls, self._held, self._changed)):
            return
        self._changed[event_key] = text
        if len(self._changed) > _MOST_CHANGES:
            del self._changed[next(iter(self._changed))]
        if (call := self._calls.pop(event_key, None)) is not None:
            self.add(call)

    def turn(self, event_key: str) -> asyncio.Lock:
        """What is held while it is being kept."""
        return self._turns.setdefault(event_key, asyncio.Lock())

    @contextmanager
    def seeing(self, at: float) -> Iterator[None]:
        """It is seen what there is to do about a message that was said then, for as long as this is entered."""
        self._seen.append(at)
        try:
            yield
        finally:
            self._seen.remove(at)

    @contextmanager
    def holding(self, call: Call) -> Iterator[None]:
        """It is being taken in, for as long as this is entered, within `seeing`."""
        key, before = call.inbound.event_key, self._held.get(call.inbound.event_key)
        self._held[key] = call
        try:
            yield
        finally:
            if before is None:
                del self._held[key]

    def before(self, call: Call) -> list[Call]:
        """What was said before it in its session and could not be kept, in its order; if it ends all that, what is
        being taken in as well.
        """
        ends_all = call.command is not None and call.holds_up
        older = {**self._calls, **self._held} if ends_all else self._calls
        here = (one for one in older.values() if one.inbound.session_id == call.inbound.session_id)
        return sorted((one for one in here if said_at(one) < said_at(call)), key=said_at)


def said_at(call: Call) -> float:
    """When it was said, in seconds since the epoch."""
    return call.inbound.sent_at


async def unheard(
    places: Places, calls: Sequence[Call], alive: set[str], begun: Mapping[str, float], *, since: float
) -> list[Call]:
    """Those of what was said that are to be taken in, in the order in which they were said: neither known, nor said
    before the bot spoke there, nor of a conversation that was started over since or has been silent for long, nor asked
    by somebody who has said `stop` since.

    Args:
        since: what was said before then (seconds since the epoch) is taken in only if it calls the bot by name, which
            it may do by an edit.
        alive: the conversations that are not silent; those in which the bot is called become so.
        begun: since when the bot speaks in each place.
    """
    if not calls:
        return []
    known = await places.known(call.inbound.event_key for call in calls)
    sessions = {call.inbound.session_id for call in calls}
    over, stopped = await places.started_over_at(sessions), await places.stopped_at(sessions)
    found = []
    for call in sorted(calls, key=said_at):
        inbound = call.inbound
        if (call.is_called or call.is_on_answer) and (inbound.sent_at >= since or inbound.event_key not in known):
            alive.add(inbound.session_id)
        after = max(over.get(inbound.session_id, 0.0), begun.get(inbound.place, inf))
        if not call.is_called or call.is_free:
            after = max(after, since)
        if call.command is None:
            after = max(after, stopped.get((inbound.session_id, inbound.author), 0.0))
        if inbound.session_id in alive and inbound.event_key not in known and inbound.sent_at >= after:
            found.append(call)
    return found
