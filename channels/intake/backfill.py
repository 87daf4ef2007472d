"""Backfill: fetches messages that were missed or could not be stored.

A platform's watermark is the time until which all its messages are stored. After a disconnection (a gap), the messages
since the watermark are fetched from each known place. Those that are not stored yet are stored in the order in which
they were sent.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from cachetools import LRUCache

from channels.intake.incoming import EDIT_MENTION_WINDOW_SECONDS, Incoming, IncomingChange, IncomingMessage
from channels.settings import BackfillLimits
from core.concurrency.retry import backoff, retry_forever, retry_store
from core.concurrency.tasks import run_concurrently, run_every
from core.errors import StoreError
from core.inbox.watermarks import ActivePlace, Watermarks
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Fetches go back further than the gap: clocks differ, and a message may be received but not in memory yet.
OVERLAP_SECONDS = 60.0

#: A session without messages for so long is over: only messages that mention the bot are still stored.
ACTIVE_SECONDS = 7 * 86_400.0

#: The most places, and the most sessions, of one backfill: those with the newest messages.
MAX_PLACES = 500

#: Places fetched, or sessions stored, at once. After as many failures the others wait for the next try.
MAX_CONCURRENT_TASKS = 8

#: Seconds that one backfill may take; messages that are not fetched by then are skipped.
BACKFILL_TIMEOUT_SECONDS = 900.0

#: The pauses before a backfill that failed is retried.
FETCH_WAIT = backoff(max_seconds=30.0)

#: The pauses before storing is retried. They stay short: another worker may store the next message as soon as the
#: database is back.
STORE_WAIT = backoff(max_seconds=0.25)

#: The most seconds that a new message waits for the fetch of older messages of its place.
MAX_WAIT_SECONDS = 15.0

#: The most messages that are kept in memory until they are stored; more of them are fetched again.
MAX_PENDING = 1_000

#: The most deleted messages in memory: Slack may deliver a message after its deletion.
MAX_DELETED = 1_000

#: Seconds between two updates of the watermark, and seconds that stopping may take.
WATERMARK_SECONDS, STOP_TIMEOUT = 10.0, 2.0


#: Takes a time (seconds since the epoch); returns a function that fetches the messages of a place since then, which
#: raises `ParleyError`.
CreateFetch = Callable[[float], Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]]


@dataclass(slots=True)
class _Gap:
    """Period from `since` to now in which messages may have been missed.

    Attributes:
        places: the known places by id; None until they are read from the database.
        active: the ids of the sessions with recent messages.
        locks: by place id; a place is fetched by one task at a time.
    """

    since: float
    fetch: Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]
    places: dict[str, ActivePlace] | None = None
    active: set[str] = field(default_factory=set)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    fetched: set[str] = field(default_factory=set)
    found_count: int = 0


class Backfill:
    """Stores a platform's messages in order, and fetches and stores missed ones.

    A place is a channel with its threads, or a conversation of direct messages.

    Args:
        store: stores a message or a change of one; raises `StoreError` if it could not be stored.
        delays_new_messages: whether a new message waits until older messages of its place are fetched. This keeps the
            order only if one process receives all messages of a place.
        watermark_name: set if the platform has several watermarks, such as one per Discord shard.
        has_place: returns whether the place with an id belongs to this watermark.
    """

    def __init__(
        self,
        platform: str,
        watermarks: Watermarks,
        limits: BackfillLimits,
        *,
        store: Callable[[Incoming], Awaitable[None]],
        create_fetch: CreateFetch,
        delays_new_messages: bool,
        watermark_name: str = "",
        has_place: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._platform = platform
        self._watermark_name = watermark_name or platform
        self._has_place = has_place
        self._watermarks = watermarks
        self._limits = limits
        self._store_incoming = store
        self._create_fetch = create_fetch
        self._last_event_at: Callable[[], float] = lambda: 0.0
        self._delays_new_messages = delays_new_messages
        self._gap: _Gap | None = None
        self._pending = dict[str, Incoming]()  # received or fetched, and not stored yet, by event key
        self._deleted: LRUCache[str, None] = LRUCache(MAX_DELETED)  # by event key
        self._locks = WeakValueDictionary[str, asyncio.Lock]()  # by session: one message is stored at a time
        self._watermark: float | None = None  # as it is stored; None until it is known
        self._gap_opened = asyncio.Event()
        self._store_failed = asyncio.Event()
        self._tasks = list[asyncio.Task[None]]()

    async def start(self, connect: Callable[[], Awaitable[None]], last_event_at: Callable[[], float]) -> None:
        """Connect, and start to fetch the messages since the stored watermark, if any.

        Background tasks also retry to store messages, and store the watermark. `connect` returns once the connection
        receives messages. `last_event_at` returns the time of the last event or heartbeat; 0 before the first.
        """
        watermark = await retry_store(
            lambda: self._watermarks.get_watermark(self._watermark_name),
            operation=f"the watermark of {self._watermark_name}",
        )
        if watermark is not None:
            self.open_gap(watermark)
        self._watermark = watermark or 0.0
        self._last_event_at = last_event_at
        await connect()
        failure = f"{self._platform}: messages are not stored yet"
        self._start_task(retry_forever(self._store_pending, self._store_failed, STORE_WAIT, failure=failure))
        failure = f"{self._platform}: a gap is not fetched yet"
        self._start_task(retry_forever(self._fetch_all, self._gap_opened, FETCH_WAIT, failure=failure))
        failure = f"{self._platform}: the watermark cannot be stored"
        self._start_task(run_every(WATERMARK_SECONDS, self._save_watermark, failure=failure))

    async def stop(self) -> None:
        """Cancel the background tasks, and store the watermark; failures are logged.

        Each of the two takes at most `STOP_TIMEOUT` seconds: tasks that have not ended by then are left. The next
        process fetches the messages that this process has not stored.
        """
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_TIMEOUT)  # the database may not answer
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._save_watermark()
        except (StoreError, TimeoutError) as error:
            log.warning("%s: the watermark cannot be stored: %s", self._platform, format_error(error))

    def open_gap(self, since: float) -> None:
        """Start to fetch all messages since a time, in the background; do nothing if `BackfillLimits.hours` is 0.

        If such a fetch is running, one from the earlier of both times replaces it.
        """
        if self._limits.hours:
            since = min(since, self._gap_start)
            self._gap = _Gap(
                since, self._create_fetch(self._limit_age(since - OVERLAP_SECONDS - EDIT_MENTION_WINDOW_SECONDS))
            )
            self._gap_opened.set()

    async def receive(self, message: Incoming) -> None:
        """Store a new message, or a change of one, after the older ones of its session.

        With `delays_new_messages`, it first waits for the fetch of missed messages of its place, for at most
        `MAX_WAIT_SECONDS`. Commands and changes do not wait.

        Raises:
            StoreError: `MAX_PENDING` messages wait to be stored; a gap is opened, so that the message is fetched later.
            Exception: the message is not stored yet; a background task retries to store it.
        """
        inbound = message.inbound
        if isinstance(message, IncomingChange):
            if message.text is None:
                self._deleted[message.changed_key] = None
            if changed := self._pending.get(message.changed_key):  # its author, and so its session, may be unknown
                inbound = replace(inbound, session_id=changed.inbound.session_id)
                message = replace(message, inbound=inbound)
        if len(self._pending) >= MAX_PENDING and self._limits.hours:
            self.open_gap(inbound.sent_at)
            raise StoreError("too many messages could not be stored")
        self._pending[inbound.event_key] = message
        try:
            if _is_question(message):
                await self._wait_for_fetches({inbound.place})
            await self._store_session(inbound.session_id, until=inbound.sent_at)
        except BaseException as error:  # a closed socket cancels it
            self._store_failed.set()
            if inbound.event_key in self._pending or not isinstance(error, Exception):
                raise

    # Pending messages

    async def _store_session(self, session_id: str, *, until: float = inf) -> None:
        """Store the pending messages of a session that were sent until a time, oldest first; raise the last failure.

        If the database fails for a temporary reason, the remaining messages stay pending. A message that fails for
        another reason does not block the later ones.
        """
        failure: Exception | None = None
        async with self._lock(session_id):
            pending = (message for message in self._pending.values() if message.inbound.session_id == session_id)
            for message in sorted((message for message in pending if _sent_at(message) <= until), key=_sent_at):
                try:
                    await self._store(message)
                except Exception as error:
                    failure = error
                    if isinstance(error, StoreError) and error.retryable:
                        break
        if failure is not None:
            raise failure

    async def _store(self, message: Incoming) -> None:
        key = message.inbound.event_key
        try:
            if key not in self._deleted:
                await self._store_incoming(message)
        except Exception:
            if self._pending.get(key) is message:
                self._pending[key] = replace(message, is_late=True)
            raise
        if self._pending.get(key) is message:
            del self._pending[key]

    async def _store_pending(self) -> None:
        """Retry to store all pending messages; log and drop those older than `BackfillLimits.hours`."""
        oldest = time.time() - max(1.0, self._limits.hours) * 3600
        for message in [message for message in self._pending.values() if _sent_at(message) < oldest]:
            log.error("%s: a message is dropped: it could not be stored for too long", self._platform)
            del self._pending[message.inbound.event_key]
        messages = sorted(self._pending.values(), key=_sent_at)
        await self._wait_for_fetches({message.inbound.place for message in messages if _is_question(message)})
        await _for_each(self._store_session, dict.fromkeys(message.inbound.session_id for message in messages))

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())

    # Missing messages

    @property
    def _gap_start(self) -> float:
        return self._gap.since if self._gap is not None else inf

    def _limit_age(self, since: float) -> float:
        return max(since, time.time() - self._limits.hours * 3600)

    async def _fetch_all(self) -> None:
        """Fetch and store the missed messages of all places, then close the gap, unless a new one was opened meanwhile.

        After `BACKFILL_TIMEOUT_SECONDS` the gap is closed anyway; after another failure it stays open.
        """
        gap = self._gap
        if gap is None:
            return
        if len(self._pending) >= MAX_PENDING:  # fetched messages could not be stored either
            raise StoreError("too many messages could not be stored")
        try:
            async with asyncio.timeout(BACKFILL_TIMEOUT_SECONDS) as limit:
                await _for_each(partial(self._fetch, gap), await self._list_places(gap))
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("%s: the backfill took too long; messages that are not fetched yet are dropped", self._platform)
        if gap is self._gap:
            log.info(
                "%s: backfill of %.0f s: %d messages found", self._platform, time.time() - gap.since, gap.found_count
            )
            self._gap = None

    async def _wait_for_fetches(self, places: Collection[str]) -> None:
        """Fetch and store the missed messages of some places, for at most `MAX_WAIT_SECONDS`; failures are logged.

        After that time the call cancels its fetches; `_fetch_all` fetches the rest.
        """
        if self._gap is None or not self._delays_new_messages or not places:
            return
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await _for_each(partial(self._fetch, self._gap), places)
        except Exception as error:
            log.info("%s: new messages no longer wait for the backfill: %s", self._platform, format_error(error))

    async def _fetch(self, gap: _Gap, place_id: str) -> None:
        """Fetch and store the missed messages of a place, once per gap; after a failure, the next call tries again.

        If all places of the gap together have more than `BackfillLimits.messages`, the oldest messages of this place
        are dropped. Messages that cannot be stored are retried in the background.
        """
        async with gap.locks[place_id]:
            if place_id in gap.fetched or gap is not self._gap:
                return
            missing = await retry_store(partial(self._list_missing, gap, place_id), operation=f"fetching {place_id}")
            gap.fetched.add(place_id)
            surplus = max(0, gap.found_count + len(missing) - self._limits.messages)
            if surplus:
                log.warning(
                    "%s: %d missed messages exceed the limit of the backfill and are dropped", self._platform, surplus
                )
            newest = missing[surplus:]
            gap.found_count += len(newest)
            self._pending |= {message.inbound.event_key: replace(message, is_late=True) for message in newest}
            for session_id in dict.fromkeys(message.inbound.session_id for message in newest):
                try:
                    await self._store_session(session_id)
                except BaseException as error:  # a caller that stops waiting cancels this
                    self._store_failed.set()
                    if not isinstance(error, Exception):
                        raise

    async def _list_missing(self, gap: _Gap, place_id: str) -> list[IncomingMessage]:
        places = await self._list_places(gap)
        if place_id not in places:
            return []
        since = self._limit_age(gap.since - OVERLAP_SECONDS)
        begun_at = {place.id: place.begun_at for place in places.values()}
        return await filter_missing(
            self._watermarks, await gap.fetch(places[place_id]), gap.active, begun_at, since=since
        )

    async def _list_places(self, gap: _Gap) -> Mapping[str, ActivePlace]:
        """Return the places of this watermark by id, the newest first, and add their sessions to `gap.active`."""
        if gap.places is None:
            active_since = self._limit_age(gap.since - OVERLAP_SECONDS) - ACTIVE_SECONDS
            served = await self._watermarks.list_active_places(self._platform, since=active_since, limit=MAX_PLACES)
            gap.places = {place.id: place for place in served if self._has_place(place.id)}
            gap.active.update(session for place in gap.places.values() for session in place.sessions)
        return gap.places

    # The watermark

    async def _save_watermark(self) -> None:
        until = min(self._last_event_at(), self._gap_start, *map(_sent_at, self._pending.values()))
        if self._watermark is not None and until and until != self._watermark:
            await self._watermarks.save_watermark(self._watermark_name, until)
            self._watermark = until

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"backfill of {self._watermark_name}"))


async def filter_missing(
    watermarks: Watermarks,
    messages: Sequence[IncomingMessage],
    active_sessions: set[str],
    begun_at: Mapping[str, float],
    *,
    since: float,
) -> list[IncomingMessage]:
    """Return the fetched messages that are to be stored, oldest first.

    These messages are left out:

    - messages that are stored already;
    - messages from before the first session of their place began (`begun_at`, by the id of the place; all of a place
      that it lacks), or before a reset of their session;
    - messages from before `since`, unless they have `is_mention` and not `is_free_channel`: an edit may have added the
      mention;
    - messages, but not commands, from before a `stop` of their author;
    - messages of sessions that are not in `active_sessions`. The session of a mention of the bot, or of a message in a
      thread on its answer, is added to them. A message that is stored and older than `since` adds none.
    """
    if not messages:
        return []
    known = await watermarks.find_known_keys(message.inbound.event_key for message in messages)
    sessions = {message.inbound.session_id for message in messages}
    reset_at, stopped_at = await watermarks.get_cancellation_times(sessions)
    missing = []
    for message in sorted(messages, key=_sent_at):
        inbound = message.inbound
        if (message.is_mention or message.is_in_answer_thread) and (
            inbound.sent_at >= since or inbound.event_key not in known
        ):
            active_sessions.add(inbound.session_id)
        after = max(reset_at.get(inbound.session_id, 0.0), begun_at.get(inbound.place, inf))
        if not message.is_mention or message.is_free_channel:
            after = max(after, since)
        if message.command is None:
            after = max(after, stopped_at.get((inbound.session_id, inbound.author), 0.0))
        if inbound.session_id in active_sessions and inbound.event_key not in known and inbound.sent_at >= after:
            missing.append(message)
    return missing


async def _for_each(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Await `work` for all items, `MAX_CONCURRENT_TASKS` at a time; raise the first failure.

    After a failure, the work for other items continues; after `MAX_CONCURRENT_TASKS` failures it is cancelled.
    """
    failures = list[Exception]()

    async def attempt(item: T) -> None:
        try:
            await work(item)
        except Exception as error:
            failures.append(error)
            if len(failures) >= MAX_CONCURRENT_TASKS:
                raise

    await run_concurrently(attempt, items, MAX_CONCURRENT_TASKS)
    if failures:
        raise failures[0]


def _is_question(message: Incoming) -> bool:
    return isinstance(message, IncomingMessage) and message.command is None


def _sent_at(message: Incoming) -> float:
    return message.inbound.sent_at
