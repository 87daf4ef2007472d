"""Schedules of people: tasks for the agent, or texts, that are due once or repeatedly.

A row exists as long as its schedule is open. When it is due, one transaction stores the entry of the inbox that begins
the turn, and moves `next_at`: a schedule fires once, whichever worker dies. A schedule that people have to confirm has
no `next_at`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import ScheduleError, SessionResetError, StoreError, UnreadableRowError
from core.messages.identity import Actor, find_time_zone, to_one_line
from core.messages.inbox_message import InboxMessage
from core.messages.trigger import DIRECT, LATE_SECONDS, Trigger
from core.observability.secret_redaction import format_error
from core.sessions.lifecycle import lock_session_row
from core.store.database import Database
from core.store.errors import name_row
from core.store.schema import inbox, schedules, time_zones
from core.store.upsert import build_insert, insert_or_update
from core.turns.automation.recurrence import (
    HORIZON,
    check_distances,
    find_next,
    list_next,
    normalize_rule,
    parse_time,
    to_local,
    to_timestamp,
)
from core.turns.queries import append_triggered

log = logging.getLogger(__name__)

#: The most open schedules of a person, and the least minutes between two times of one, by default.
MAX_SCHEDULES, MIN_MINUTES = 20, 5.0

#: The most characters of a schedule's text, and of its title.
MAX_TEXT_CHARACTERS, MAX_TITLE_CHARACTERS = 2_000, 100

#: The most seconds until a worker looks for schedules that other workers made.
POLL_SECONDS = 30.0

#: The most schedules that fire before other work of the process gets its turn.
BATCH_SIZE = 200

#: Seconds after which a proposed schedule is deleted, and between two such deletions.
PROPOSAL_SECONDS, CLEANUP_SECONDS = 86_400.0, 600.0

ScheduleState = Literal["proposed", "active", "paused"]


class ScheduleDenial(StrEnum):
    """Reason why a schedule is not changed.

    Attributes:
        GONE: there is no such schedule any more.
        NOT_OWNER: another person has to press.
        NEEDS_ZONE: the person's time zone is unknown.
        PAST: its only time, or its last one, has passed.
        TOO_MANY: the person has as many open schedules as they may have.
    """

    GONE = "gone"
    NOT_OWNER = "not_owner"
    NEEDS_ZONE = "needs_zone"
    PAST = "past"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A row of `schedules`, with the message that it sends.

    Attributes:
        starts_at: a time in ISO 8601: local in `time_zone`, or with an offset.
        rule: an RRULE, normalized unless the schedule waits for a time zone; None for once.
        speakers: the ids of the people who may confirm it; None for anybody, empty if only a time zone is missing.
        turn: the `Turn.origin` that made it.
    """

    id: str
    message: InboxMessage
    is_plain: bool
    is_direct: bool
    starts_at: str
    time_zone: str | None
    rule: str | None
    next_at: float | None
    state: ScheduleState
    speakers: tuple[str, ...] | None
    turn: str
    created_at: float

    @property
    def title(self) -> str:
        """The first line of the text, shortened, without a full stop."""
        line = to_one_line(self.message.text.strip().split("\n", 1)[0]).removesuffix(".")
        return line if len(line) <= MAX_TITLE_CHARACTERS else f"{line[: MAX_TITLE_CHARACTERS - 1].rstrip()}…"

    @property
    def needs_zone(self) -> bool:
        """True if its times cannot be computed without a person's time zone."""
        return self.time_zone is None and (self.rule is not None or parse_time(self.starts_at).tzinfo is None)

    def may_confirm(self, user: str) -> bool:
        return self.speakers is None or user in (self.speakers or (self.message.author,))

    def list_times(self, count: int) -> list[float]:
        """Return the next times, also of a schedule that is not active, at most `count`; none if its zone is needed.

        It may take some 0.1 s of CPU time.
        """
        zone = find_time_zone(self.time_zone or "UTC")
        if self.needs_zone or zone is None:
            return []
        start = parse_time(self.starts_at)
        if self.rule is None:
            return [to_timestamp(start, zone)]
        return list_next(self.rule, start, zone, time.time() if self.next_at is None else self.next_at - 1, count)


@dataclass(frozen=True, slots=True)
class _Times:
    """Columns of an active schedule that depend on its time zone."""

    starts_at: str
    rule: str | None
    next_at: float


def create_user_key(actor: Actor) -> str:
    """Return the key of a person in `time_zones`."""
    return f"{actor.platform}:{actor.author}"


class ScheduleStore:
    """Store of schedules, which fires those that are due.

    Args:
        wake: called when entries of due schedules are stored.
        limit: the most open schedules of a person.
        min_minutes: the least time between two times of a schedule.
    """

    def __init__(
        self,
        database: Database,
        wake: Callable[[], None],
        *,
        limit: int = MAX_SCHEDULES,
        min_minutes: float = MIN_MINUTES,
    ) -> None:
        self._database = database
        self._on_fired = wake
        self._limit = limit
        self._min_seconds = min_minutes * 60
        self._wake = asyncio.Event()
        self._cleaned_at = 0.0

    async def create(self, schedule: Schedule, generation: int) -> Schedule:
        """Store a schedule of a turn, once by its id, and return it as stored.

        An active one gets its next time. The times of a proposed one are checked, as far as they are known.

        Raises:
            ScheduleError: it is refused: its text says why, and what to do.
            SessionResetError: the session has another generation.
        """
        new = schedule
        if schedule.needs_zone:
            await self._resolve(schedule, "UTC", is_preview=True)
        else:
            new = replace(schedule, **asdict(await self._resolve(schedule, schedule.time_zone)))
            new = new if new.state == "active" else replace(new, next_at=None)
        async with self._database.write() as connection:
            if await lock_session_row(connection, new.message.session_id) != generation:
                raise SessionResetError.of(new.message.session_id, generation)
            stored = await _get(connection, new.id)
            # a turn that continues after a crash creates its schedules again; one may have fired and ended meanwhile
            if stored is None and not await _has_fired(connection, new):
                if await self._has_too_many(connection, new.message):
                    raise ScheduleError(
                        f"the person has {self._limit} open schedules, the most they may have: they can delete some "
                        "with the command schedule"
                    )
                insert = build_insert(connection.dialect.name, schedules).values(_to_row(new))
                await connection.execute(insert.on_conflict_do_nothing())
        self._wake.set()
        return stored or new

    async def get(self, id_: str) -> Schedule | None:
        async with self._database.read() as connection:
            return await _get(connection, id_)

    async def list_of_person(self, platform: str, author: str) -> list[Schedule]:
        """Return the open schedules of a person, the next one first."""
        return await self._list(_is_of(platform, author))

    async def list_of_turn(self, origin: str) -> list[Schedule]:
        """Return the open schedules that a turn made, oldest first."""
        found = await self._list(schedules.c.turn == origin)
        return sorted(found, key=lambda schedule: (schedule.created_at, schedule.id))

    async def count_of_session(self, session_id: str) -> int:
        count = sa.select(sa.func.count()).where(schedules.c.session == session_id)
        async with self._database.read() as connection:
            return await connection.scalar(count) or 0

    async def list_times(self, schedule: Schedule, count: int) -> list[float]:
        """Return the next times of a schedule: see `Schedule.list_times`; none if they take too long to find."""
        with suppress(ScheduleError):
            return await asyncio.to_thread(schedule.list_times, count)
        return []

    async def list_all(self) -> list[Schedule]:
        """Return all open schedules, the next one first."""
        return await self._list(sa.true())

    async def delete(self, id_: str, by: str | None = None) -> Schedule | ScheduleDenial:
        """Delete a schedule, and return it.

        Args:
            by: the id of the person, who must have made the schedule, or be able to confirm it; None for an operator.
        """
        found = await self.get(id_)
        if found is None:
            return ScheduleDenial.GONE
        is_owner = by in (None, found.message.author)
        if not (is_owner or (found.state == "proposed" and found.may_confirm(str(by)))):
            return ScheduleDenial.NOT_OWNER
        async with self._database.write() as connection:
            deleted = await connection.execute(sa.delete(schedules).where(schedules.c.id == id_))
        return found if deleted.rowcount else ScheduleDenial.GONE

    async def pause(self, id_: str, by: str) -> Schedule | ScheduleDenial:
        """Pause an active schedule of a person; return it."""
        found = await self.get(id_)
        if found is None or found.message.author != by:
            return ScheduleDenial.NOT_OWNER if found else ScheduleDenial.GONE
        return await self._change(replace(found, state="paused", next_at=None), former="active")

    async def resume(self, id_: str, by: str) -> Schedule | ScheduleDenial:
        """Make a paused schedule of a person active again, from its next time on; return it."""
        found = await self.get(id_)
        if found is None or found.message.author != by:
            return ScheduleDenial.NOT_OWNER if found else ScheduleDenial.GONE
        try:
            times = await self._resolve(found, found.time_zone)
        except ScheduleError:
            return ScheduleDenial.PAST
        return await self._change(replace(found, state="active", **asdict(times)), former="paused")

    async def confirm(self, id_: str, by: Actor, name: str) -> Schedule | ScheduleDenial:
        """Make a proposed schedule active, as one of the person who pressed its button; return it."""
        found = await self.get(id_)
        if found is None or found.state != "proposed":
            return ScheduleDenial.GONE
        if not found.may_confirm(by.author):
            return ScheduleDenial.NOT_OWNER
        zone = found.time_zone
        if found.needs_zone and (zone := await self.get_time_zone(create_user_key(by))) is None:
            return ScheduleDenial.NEEDS_ZONE
        try:
            times = await self._resolve(found, zone)
        except ScheduleError:
            return ScheduleDenial.PAST
        message = found.message
        if by.author != message.author:
            author = {"speaker": name, "author": by.author, "user": by.author}
            address = {**message.address, **{key: author[key] for key in author.keys() & message.address.keys()}}
            message = replace(message, author=by.author, actor=by, address=address)
        active = replace(found, message=message, state="active", time_zone=zone, speakers=(), **asdict(times))
        return await self._change(active, former="proposed", is_new_owner=by.author != found.message.author)

    async def get_time_zone(self, user_key: str) -> str | None:
        """Return the IANA name of the time zone that a person has chosen."""
        query = sa.select(time_zones.c.zone).where(time_zones.c.user_key == user_key)
        async with self._database.read() as connection:
            return await connection.scalar(query)

    async def choose_time_zone(self, zone: str, by: Actor, name: str, confirmed: str = "") -> list[Schedule]:
        """Store a person's time zone, and return their schedules that become active by it.

        These are all that wait for nothing else, and the one with the id `confirmed`, if the person may confirm it.
        """
        async with self._database.write() as connection:
            await insert_or_update(connection, time_zones, {"user_key": create_user_key(by), "zone": zone})
        activated = list[Schedule]()
        waiting = [each for each in await self.list_of_person(by.platform, by.author) if each.needs_zone]
        for id_ in dict.fromkeys([*filter(None, [confirmed]), *(each.id for each in waiting if each.speakers == ())]):
            changed = await self.confirm(id_, by, name)
            if isinstance(changed, Schedule):
                activated.append(changed)
        return activated

    async def run_firing(self) -> None:
        """Fire due schedules until cancelled; log errors."""
        while True:
            self._wake.clear()
            pause = POLL_SECONDS
            try:
                pause = await self.fire_due()
                await self._delete_old_proposals()
            except StoreError as error:
                log.warning("due schedules cannot be read: %s", format_error(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def fire_due(self) -> float:
        """Fire at most `BATCH_SIZE` due schedules, and return the seconds until the next look."""
        now = time.time()
        query = sa.select(schedules).where(schedules.c.next_at <= now).order_by(schedules.c.next_at, schedules.c.id)
        async with self._database.read() as connection:
            due = (await connection.execute(query.limit(BATCH_SIZE))).all()
        following = await asyncio.to_thread(self._list_following, due, now)
        fired = [await self._fire(row, next_at, now) for row, next_at in zip(due, following, strict=True)]
        if any(fired):
            self._on_fired()
        if len(due) == BATCH_SIZE:
            return 0.0
        async with self._database.read() as connection:
            next_at = await connection.scalar(sa.select(sa.func.min(schedules.c.next_at)))
        return POLL_SECONDS if next_at is None else min(POLL_SECONDS, max(0.0, next_at - time.time()))

    def _list_following(self, due: Sequence[sa.Row[Any]], now: float) -> list[float | None]:
        """Return for each due row the time after it; several times that a downtime missed count as one."""
        found = list[float | None]()
        for row in due:
            zone = find_time_zone(row.time_zone or "")
            earliest = (now if now - row.next_at > LATE_SECONDS else row.next_at) + self._min_seconds
            next_at = None
            if row.rule is not None and zone is not None:
                with suppress(ScheduleError):
                    next_at = find_next(row.rule, parse_time(row.starts_at), zone, max(now, earliest - 1))
            found.append(next_at)
        return found

    async def _fire(self, row: sa.Row[Any], next_at: float | None, now: float) -> bool:
        """Store the entry of a due schedule, and move or delete the schedule; False if another worker did."""
        schedule = _parse(row)
        is_due = (schedules.c.id == row.id) & (schedules.c.next_at == row.next_at)
        has_next = next_at is not None and schedule is not None
        moved = sa.update(schedules).values(next_at=next_at) if has_next else sa.delete(schedules)
        async with self._database.write() as connection:
            if not (await connection.execute(moved.where(is_due))).rowcount or schedule is None:
                return False
            return await append_triggered(connection, _create_entry(schedule, row.next_at, now))

    async def _change(
        self, changed: Schedule, *, former: ScheduleState, is_new_owner: bool = False
    ) -> Schedule | ScheduleDenial:
        """Store a schedule that had a former state."""
        is_former = (schedules.c.id == changed.id) & (schedules.c.state == former)
        async with self._database.write() as connection:
            if is_new_owner and await self._has_too_many(connection, changed.message):
                return ScheduleDenial.TOO_MANY
            updated = await connection.execute(sa.update(schedules).where(is_former).values(_to_row(changed)))
        self._wake.set()
        return changed if updated.rowcount else ScheduleDenial.GONE

    async def _has_too_many(self, connection: AsyncConnection, message: InboxMessage) -> bool:
        owned = sa.select(sa.func.count()).where(_is_of(message.platform, message.author))
        return (await connection.scalar(owned) or 0) >= self._limit

    async def _list(self, condition: sa.ColumnElement[bool]) -> list[Schedule]:
        query = sa.select(schedules).where(condition)
        ordered = query.order_by(sa.func.coalesce(schedules.c.next_at, 1e12), schedules.c.created_at, schedules.c.id)
        async with self._database.read() as connection:
            return [schedule for row in await connection.execute(ordered) if (schedule := _parse(row)) is not None]

    async def _delete_old_proposals(self) -> None:
        now = time.time()
        if now - self._cleaned_at < CLEANUP_SECONDS:
            return
        self._cleaned_at = now
        is_old = (schedules.c.state == "proposed") & (schedules.c.created_at < now - PROPOSAL_SECONDS)
        async with self._database.write() as connection:
            await connection.execute(sa.delete(schedules).where(is_old))

    async def _resolve(self, schedule: Schedule, zone_name: str | None, *, is_preview: bool = False) -> _Times:
        """Compute a schedule's times in a time zone; a preview in another one than the person's may be in the past.

        Raises:
            ScheduleError: the rule is refused, or the time has passed.
        """
        return await asyncio.to_thread(self._compute, schedule, zone_name, is_preview)

    def _compute(self, schedule: Schedule, zone_name: str | None, is_preview: bool) -> _Times:
        zone = find_time_zone(zone_name or "UTC")
        if zone is None:
            raise ScheduleError(f"there is no time zone {zone_name}: use an IANA name, such as Europe/Paris")
        now = time.time()
        start = parse_time(schedule.starts_at)
        if schedule.rule is None:
            at = to_timestamp(start, zone)
            if at <= now and not is_preview:
                raise ScheduleError(
                    f"{schedule.starts_at} has passed: it is {to_local(now, zone):%Y-%m-%dT%H:%M} in {zone}"
                )
            if at > now + HORIZON.total_seconds():
                raise ScheduleError(f"{schedule.starts_at} is more than five years ahead: choose an earlier time")
            return _Times(schedule.starts_at, None, at)
        local = to_local(start.timestamp(), zone) if start.tzinfo else start
        rule = normalize_rule(schedule.rule, local, zone)
        check_distances(rule, local, zone, now, self._min_seconds)
        next_at = find_next(rule, local, zone, now)
        if next_at is None:
            raise ScheduleError("the last time of the rule has passed: change UNTIL")
        return _Times(local.isoformat(), rule, next_at)


def _is_of(platform: str, author: str) -> sa.ColumnElement[bool]:
    return (schedules.c.platform == platform) & (schedules.c.author == author)


async def _get(connection: AsyncConnection, id_: str) -> Schedule | None:
    row = (await connection.execute(sa.select(schedules).where(schedules.c.id == id_))).one_or_none()
    return None if row is None else _parse(row)


async def _has_fired(connection: AsyncConnection, schedule: Schedule) -> bool:
    is_entry = (inbox.c.author == schedule.message.author) & (inbox.c.kind == "schedule")
    fired = sa.select(inbox.c.id).where(is_entry, inbox.c.event_key.startswith(f"schedule:{schedule.id}:"))
    return (await connection.execute(fired.limit(1))).first() is not None


def _to_row(schedule: Schedule) -> dict[str, Any]:
    message = schedule.message
    return {
        "id": schedule.id,
        "session": message.session_id,
        "place": message.place,
        "platform": message.platform,
        "author": message.author,
        "message": message.to_json(),
        "is_plain": schedule.is_plain,
        "is_direct": schedule.is_direct,
        "starts_at": schedule.starts_at,
        "time_zone": schedule.time_zone,
        "rule": schedule.rule,
        "next_at": schedule.next_at,
        "state": schedule.state,
        "speakers": None if schedule.speakers is None else list(schedule.speakers),
        "turn": schedule.turn,
        "created_at": schedule.created_at,
    }


def _parse(row: sa.Row[Any]) -> Schedule | None:
    """Return a schedule; None if its row cannot be read, which is logged."""
    try:
        with name_row("schedules", row.id):
            message = InboxMessage.from_json(row.message)
    except UnreadableRowError as error:
        log.error("%s", error)
        return None
    return Schedule(
        row.id,
        message,
        row.is_plain,
        row.is_direct,
        row.starts_at,
        row.time_zone,
        row.rule,
        row.next_at,
        row.state,
        None if row.speakers is None else tuple(row.speakers),
        row.turn,
        row.created_at,
    )


def _create_entry(schedule: Schedule, due_at: float, now: float) -> InboxMessage:
    """Return the inbox entry that begins the turn of a due schedule."""
    target = DIRECT if schedule.is_direct else ""
    trigger = Trigger("schedule", schedule.id, schedule.title, due_at, is_plain=schedule.is_plain, target=target)
    text = (
        schedule.message.text
        if schedule.is_plain
        else f"{_format_note(schedule, due_at, now)}\n{schedule.message.text}"
    )
    key = f"schedule:{schedule.id}:{int(due_at)}"
    return replace(schedule.message, event_key=key, text=text, sent_at=now, trigger=trigger)


def _format_note(schedule: Schedule, due_at: float, now: float) -> str:
    """Return the line above a task, for the model."""
    zone = find_time_zone(schedule.time_zone or "") or UTC

    def format_(at: float) -> str:
        return f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M}"

    late = f", and late: it is {format_(now)} now" if now - due_at > LATE_SECONDS else ""
    return f"[A scheduled task, due {format_(due_at)} ({zone}){late}. Do it now; do not schedule it again.]"
