"""Parsers of the days and times in options."""

import re
import time
from datetime import UTC, date, datetime

#: A time span such as 2h, and the seconds of its units.
_TIME_SPAN = re.compile(r"(?P<count>\d{1,9}(?:\.\d+)?)(?P<unit>[smhd])")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_day(text: str) -> date:
    """Return a day such as `2026-11-22`; raise a `ValueError` for another text."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("it must be a day, such as 2026-11-22") from None


def parse_since(text: str) -> float:
    """Return the time of a span before now (`2h`), or of an ISO 8601 date or time.

    A date without an offset is in UTC. Another text raises a `ValueError`.
    """
    if (found := _TIME_SPAN.fullmatch(text.strip())) is not None:
        return time.time() - float(found["count"]) * _UNIT_SECONDS[found["unit"]]
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("it must be a time span (30m, 2h, 7d) or a date (2026-11-22)") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
