"""Times of repeated schedules: zones, clock changes, limits."""

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ScheduleError
from core.turns.automation.recurrence import (
    check_distances,
    find_next,
    list_next,
    normalize_rule,
    parse_time,
    to_local,
    to_timestamp,
)

BERLIN, NEW_YORK, LORD_HOWE = map(ZoneInfo, ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"))


def at(text: str, zone: ZoneInfo) -> float:
    return to_timestamp(parse_time(text), zone)


def list_local(rule: str, start: str, zone: ZoneInfo, after: str, count: int) -> list[str]:
    found = list_next(rule, parse_time(start), zone, at(after, zone), count)
    return [f"{datetime.fromtimestamp(each, zone):%Y-%m-%dT%H:%M%z}" for each in found]


def test_a_time_without_an_offset_is_local() -> None:
    assert at("2026-11-30T09:00", BERLIN) == datetime(2026, 11, 30, 8, tzinfo=UTC).timestamp()
    assert at("2026-11-30T09:00-05:00", BERLIN) == datetime(2026, 11, 30, 14, tzinfo=UTC).timestamp()
    assert at("2026-11-30T09:00Z", BERLIN) == datetime(2026, 11, 30, 9, tzinfo=UTC).timestamp()
    with pytest.raises(ScheduleError, match="no time in ISO 8601"):
        parse_time("tomorrow at nine")


@pytest.mark.parametrize(
    ("zone", "change", "skipped", "moved"),
    [
        (BERLIN, "2027-03-28", "02:30", "03:30+0200"),
        (NEW_YORK, "2027-03-14", "02:30", "03:30-0400"),
        (LORD_HOWE, "2027-10-03", "02:15", "02:45+1100"),
    ],
)
def test_a_local_time_that_is_skipped_moves_by_the_length_of_the_change(
    zone: ZoneInfo, change: str, skipped: str, moved: str
) -> None:
    day_before = f"{datetime.fromisoformat(change) - timedelta(days=1):%Y-%m-%d}"
    days = list_local("FREQ=DAILY", f"2026-12-01T{skipped}", zone, f"{day_before}T00:00", 3)
    assert days[0].startswith(f"{day_before}T{skipped}")
    assert days[1] == f"{change}T{moved}"
    assert days[2][11:16] == skipped


@pytest.mark.parametrize(
    ("zone", "change", "repeated", "first"),
    [
        (BERLIN, "2027-10-31", "02:30", "+0200"),
        (NEW_YORK, "2027-11-07", "01:30", "-0400"),
        (LORD_HOWE, "2027-04-04", "01:45", "+1100"),
    ],
)
def test_of_a_local_time_that_occurs_twice_only_the_first_counts(
    zone: ZoneInfo, change: str, repeated: str, first: str
) -> None:
    days = list_local("FREQ=DAILY", f"2026-12-01T{repeated}", zone, f"{change}T00:00", 2)
    assert days[0] == f"{change}T{repeated}{first}"
    assert not days[1].startswith(change)


def test_a_moved_time_comes_after_a_later_local_time() -> None:
    rule = "FREQ=DAILY;BYHOUR=2,3;BYMINUTE=30;BYSETPOS=1,2"
    assert list_local(rule, "2027-03-01T00:00", BERLIN, "2027-03-28T00:00", 2) == [
        "2027-03-28T03:30+0200",
        "2027-03-29T02:30+0200",
    ]
    mixed = "FREQ=MINUTELY;INTERVAL=30;BYHOUR=2,3"
    assert list_local(mixed, "2027-03-28T00:30", BERLIN, "2027-03-28T01:59", 3)[:2] == [
        "2027-03-28T03:00+0200",
        "2027-03-28T03:30+0200",
    ]


def test_a_year_of_a_weekly_rule_stays_at_its_local_hour() -> None:
    rule = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0"
    times = list_local(rule, "2026-11-29T12:00", BERLIN, "2026-11-29T12:00", 53)
    assert len(times) == 53
    assert {each[11:16] for each in times} == {"09:00"}
    assert {datetime.fromisoformat(each).strftime("%a") for each in times} == {"Mon"}
    assert {each[16:] for each in times} == {"+0100", "+0200"}


def test_an_end_is_a_local_time() -> None:
    start = parse_time("2026-11-30T09:00")
    assert normalize_rule("RRULE:FREQ=DAILY;COUNT=3", start, BERLIN) == "FREQ=DAILY;UNTIL=20261202T090000"
    assert normalize_rule("freq=daily;until=20261202T080000Z", start, BERLIN) == "FREQ=DAILY;UNTIL=20261202T090000"
    assert normalize_rule("FREQ=DAILY;UNTIL=20261202", start, BERLIN) == "FREQ=DAILY;UNTIL=20261202T235959"
    rule = normalize_rule("FREQ=DAILY;COUNT=3;BYSECOND=0", start, BERLIN)
    assert list_local(rule, "2026-11-30T09:00", BERLIN, "2026-12-01T09:00", 9) == ["2026-12-02T09:00+0100"]
    assert find_next(rule, start, BERLIN, at("2026-12-02T09:00", BERLIN)) is None


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY",
        "DTSTART:20261130T090000\nRRULE:FREQ=DAILY",
        "FREQ=DAILY\nEXRULE:FREQ=DAILY",
        "FREQ=DAILY;BYEASTER=0",
        "FREQ=DAILY;BYSECOND=30",
        "FREQ=DAILY;INTERVAL=0",
        "FREQ=DAILY;INTERVAL=-1",
        "FREQ=DAILY;COUNT=2;UNTIL=20270101",
        "FREQ=DAILY;UNTIL=20271301",
        "FREQ=WEEKLY;BYDAY=XX",
        "FREQ=DAILY;BYMONTH=13",
        "FREQ=DAILY;BYHOUR=99",
        "every day",
        "",
        "FREQ=DAILY;BYMINUTE=" + ",".join(["1"] * 300),
    ],
)
def test_a_rule_outside_of_the_limits_is_refused(rule: str) -> None:
    with pytest.raises(ScheduleError):
        normalize_rule(rule, parse_time("2026-11-30T09:00"), BERLIN)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31",
        "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1,3",
        "FREQ=HOURLY;INTERVAL=2;BYHOUR=2;BYMONTH=4;BYMONTHDAY=31",
        "FREQ=WEEKLY;INTERVAL=20000;BYMONTH=2;BYDAY=1MO",
        "FREQ=MONTHLY;BYDAY=6MO",
        "FREQ=MINUTELY;BYWEEKNO=53;BYMONTH=6",
    ],
)
def test_a_rule_that_is_never_due_is_refused_in_a_second(rule: str) -> None:
    began = time.process_time()
    with pytest.raises(ScheduleError):
        normalize_rule(rule, parse_time("2026-11-30T10:00"), BERLIN)
    assert time.process_time() - began < 2.0


def test_times_that_are_too_close_are_refused() -> None:
    start = parse_time("2026-11-30T09:00")
    now = to_timestamp(start, BERLIN)
    check_distances("FREQ=MINUTELY;INTERVAL=5", start, BERLIN, now, 300)
    for rule in ("FREQ=MINUTELY;INTERVAL=4", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0,3", "FREQ=HOURLY;BYMINUTE=58,2"):
        with pytest.raises(ScheduleError, match="too often"):
            check_distances(rule, start, BERLIN, now, 300)


def test_an_old_rule_is_found_as_fast_as_a_new_one() -> None:
    start = parse_time("2026-11-30T09:00")
    began = time.process_time()
    later = to_timestamp(start, BERLIN) + 20 * 366 * 86_400
    found = find_next("FREQ=MINUTELY;INTERVAL=7", start, BERLIN, later)
    assert found is not None
    assert 0 < found - later <= 420
    assert (to_local(found, BERLIN) - start) % timedelta(minutes=7) == timedelta(0)
    assert time.process_time() - began < 1.0


_rules = st.builds(
    lambda frequency, interval, extra: f"FREQ={frequency};INTERVAL={interval}{extra}",
    st.sampled_from(["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    st.integers(1, 40),
    st.sampled_from(["", ";BYDAY=MO,WE", ";BYHOUR=2,3;BYMINUTE=30", ";BYMONTHDAY=-1", ";BYMONTH=3,10", ";WKST=SU"]),
)


@given(
    rule=_rules,
    zone=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]),
    offset=st.integers(-(10**7), 10**8),
)
def test_the_next_times_ascend_and_do_not_depend_on_the_search(rule: str, zone: ZoneInfo, offset: int) -> None:
    start = parse_time("2026-11-30T02:30")
    after = to_timestamp(start, zone) + offset
    try:
        times = list_next(rule, start, zone, after, 4)
    except ScheduleError:
        return
    assert all(earlier < later for earlier, later in pairwise([after, *times]))
    for earlier, later in pairwise([after, *times]):
        assert find_next(rule, start, zone, earlier) == later


@given(st.text(alphabet="FREQ=DAILYWKHOUMNT;BC0123456789,-+\nSEXP:", max_size=80))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    start = parse_time("2026-11-30T02:30")
    try:
        rule = normalize_rule(f"FREQ=DAILY;{text}", start, BERLIN)
    except ScheduleError:
        return
    assert find_next(rule, start, BERLIN, 0.0) is not None
