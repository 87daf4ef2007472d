"""Times of schedules: ISO 8601 for once, an RRULE (RFC 5545) for repeated ones.

Rules are computed in local time without a zone, and each result is then converted. A local time that a clock change
skips moves forward by the length of the change; of one that occurs twice, the first counts. `dateutil` searches a rule
that never occurs for over 10 s, so that each search has a limit of steps.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

from dateutil import rrule

from core.errors import ScheduleError

#: The most characters of a rule.
MAX_RULE_CHARACTERS = 500

#: The next time of a rule must come within this time.
HORIZON = timedelta(days=5 * 366)

#: The most intervals of a rule that one search looks at. Measured: 20,000 take 0.2 to 0.4 s.
MAX_STEPS = 20_000

#: The number of times of a rule whose distances are checked.
CHECKED_TIMES = 60

#: The time before the searched one at which a search begins: longer than a clock change.
_MARGIN = timedelta(days=1)

#: RFC 5545 without BYSECOND, DTSTART, RDATE and EXRULE, which need seconds or several lines.
_PARTS = frozenset(
    {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY"}
    | {"BYHOUR", "BYMINUTE", "BYSETPOS", "WKST"}
)
_RULE = re.compile(r"[A-Z]+=[A-Z0-9,+-]+(?:;[A-Z]+=[A-Z0-9,+-]+)*")
_UNTIL = re.compile(r"(\d{8})(?:T(\d{6})(Z?))?")

_UNTIL_FAULT = "UNTIL must be a time such as 20261231T180000"

#: The length of an interval; months and years have none, and so few intervals that none needs to be skipped.
_UNITS = {
    "WEEKLY": timedelta(weeks=1),
    "DAILY": timedelta(days=1),
    "HOURLY": timedelta(hours=1),
    "MINUTELY": timedelta(minutes=1),
}
_FREQUENCIES = frozenset({"YEARLY", "MONTHLY", *_UNITS})


class _StepLimitError(Exception):
    """A search has looked at `MAX_STEPS` intervals of a rule."""


class _CountedInterval(int):
    """Interval of a rule that counts how often `dateutil` adds it."""

    steps = 0

    def _count(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise _StepLimitError

    def __add__(self, other: int) -> int:
        self._count()
        return int(self) + other

    def __mul__(self, other: int) -> int:
        self._count()
        return int(self) * other

    __radd__ = __add__
    __rmul__ = __mul__


def parse_time(text: str) -> datetime:
    """Return the time in ISO 8601; it is local, without a zone, if the text has no offset.

    Raises:
        ScheduleError: the text is no such time.
    """
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ScheduleError(f"{text[:40]!r} is no time in ISO 8601: write it as 2026-11-30T09:00") from None


def to_timestamp(time: datetime, zone: ZoneInfo) -> float:
    """Return a time in Unix seconds; one without an offset is local in `zone`."""
    return (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()


def to_local(at: float, zone: ZoneInfo) -> datetime:
    """Return the local time, without a zone."""
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None)


def normalize_rule(text: str, start: datetime, zone: ZoneInfo) -> str:
    """Return a rule whose end, if it has one, is a local time in `UNTIL`.

    Args:
        start: the local time from which the rule counts.

    Raises:
        ScheduleError: the rule is invalid, or is never due within `HORIZON`.
    """
    parts = _parse_parts(text)
    if until := parts.get("UNTIL"):
        parts["UNTIL"] = _localize_until(until, zone)
    if count := parts.pop("COUNT", None):
        number = int(count)
        last = list(_search(islice(_create_rule({**parts, "COUNT": count}, start), number)))
        if last:
            parts["UNTIL"] = f"{last[-1]:%Y%m%dT%H%M%S}"
    rule = _format_parts(parts)
    if find_next(rule, start, zone, to_timestamp(start, zone) - 1) is None:
        raise ScheduleError("the rule is never due within five years: change it")
    return rule


def check_distances(rule: str, start: datetime, zone: ZoneInfo, after: float, min_seconds: float) -> None:
    """Check the next `CHECKED_TIMES` times of a normalized rule.

    Raises:
        ScheduleError: two of them are closer than `min_seconds`.
    """
    times = list_next(rule, start, zone, after, CHECKED_TIMES)
    if any(later - earlier < min_seconds for earlier, later in pairwise(times)):
        raise ScheduleError(f"the rule is due too often: at least {min_seconds / 60:g} minutes must lie between times")


def find_next(rule: str, start: datetime, zone: ZoneInfo, after: float) -> float | None:
    """Return the first time of a normalized rule after a time; None if there is none within `HORIZON`.

    Raises:
        ScheduleError: the search takes more than `MAX_STEPS` steps.
    """
    return next(iter(list_next(rule, start, zone, after, 1)), None)


def list_next(rule: str, start: datetime, zone: ZoneInfo, after: float, count: int) -> list[float]:
    """Return the next times of a normalized rule after a time, within `HORIZON`: at most `count`.

    Raises:
        ScheduleError: the search takes more than `MAX_STEPS` steps.
    """
    parts = _parse_parts(rule)
    after_local = to_local(after, zone)
    end = max(after_local, start) + HORIZON
    times = set[float]()
    skipped_until = start  # a local time that a clock change skips comes after later local times
    for local in _search(_create_rule(parts, _skip(parts, start, after_local - _MARGIN))):
        if local > end or (len(times) >= count and local > skipped_until):
            break
        at = to_timestamp(local, zone)
        if at > after:
            times.add(at)
            skipped_until = max(skipped_until, to_local(at, zone))
    return sorted(times)[:count]


def _parse_parts(text: str) -> dict[str, str]:
    rule = text.strip().upper().removeprefix("RRULE:").rstrip(";")
    if len(rule) > MAX_RULE_CHARACTERS:
        raise ScheduleError(f"the rule is longer than {MAX_RULE_CHARACTERS} characters: shorten it")
    pairs = [part.split("=") for part in rule.split(";")] if _RULE.fullmatch(rule) else []
    parts = {name: value for name, value in pairs if (name, value) != ("BYSECOND", "0")}
    if parts.get("FREQ") not in _FREQUENCIES:
        raise ScheduleError(
            "the rule must be one RRULE without DTSTART, such as FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=0, "
            f"with one of {', '.join(sorted(_FREQUENCIES))}"
        )
    if unknown := sorted(parts.keys() - _PARTS):
        raise ScheduleError(f"the rule may not have {', '.join(unknown)}: leave it out")
    if "COUNT" in parts and "UNTIL" in parts:
        raise ScheduleError("the rule has both COUNT and UNTIL: leave one of them out")
    for name in ("INTERVAL", "COUNT"):
        value = parts.get(name, "1")
        if not value.isdecimal() or not 0 < int(value) <= MAX_STEPS:
            raise ScheduleError(f"{name} must be a number from 1 to {MAX_STEPS}")
    if (until := parts.get("UNTIL")) and not _UNTIL.fullmatch(until):
        raise ScheduleError(_UNTIL_FAULT)
    return parts


def _format_parts(parts: dict[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in parts.items())


def _localize_until(until: str, zone: ZoneInfo) -> str:
    """Return the last local time of a rule; a day without a time is included."""
    match_ = _UNTIL.fullmatch(until)
    assert match_ is not None, "it was checked"
    day, time, is_utc = match_.groups()
    try:
        local = datetime.strptime(f"{day}{time or '235959'}", "%Y%m%d%H%M%S")
        return f"{local.replace(tzinfo=UTC).astimezone(zone) if is_utc else local:%Y%m%dT%H%M%S}"
    except (ValueError, OverflowError):
        raise ScheduleError(_UNTIL_FAULT) from None


def _create_rule(parts: dict[str, str], start: datetime) -> rrule.rrule:
    try:
        rule = cast("rrule.rrule", rrule.rrulestr(_format_parts(parts), dtstart=start))
        return rule.replace(interval=_CountedInterval(parts.get("INTERVAL", "1")))
    except (ValueError, TypeError, OverflowError, KeyError, IndexError) as error:
        raise ScheduleError("the rule is no valid RRULE (RFC 5545): write it anew") from error


def _search(times: Any) -> Iterator[datetime]:
    """Yield the times of a rule.

    Raises:
        ScheduleError: the search takes more than `MAX_STEPS` steps.
    """
    try:
        yield from times
    except _StepLimitError:
        raise ScheduleError(
            "the rule is due too rarely to be searched: use a larger FREQ, and UNTIL instead of COUNT"
        ) from None
    except (ValueError, OverflowError) as error:
        raise ScheduleError("the rule is no valid RRULE (RFC 5545): write it anew") from error


def _skip(parts: dict[str, str], start: datetime, until: datetime) -> datetime:
    """Return the last start of an interval of the rule before a local time, from which it has the same times."""
    unit = _UNITS.get(parts["FREQ"])
    if unit is None or until <= start:
        return start
    length = unit * int(parts.get("INTERVAL", "1"))
    return start + (until - start) // length * length
