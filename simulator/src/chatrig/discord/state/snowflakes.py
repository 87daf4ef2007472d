"""Snowflakes: Discord's ids, which contain their creation time."""

from datetime import datetime
from time import time

#: Discord's epoch: the first second of 2015.
EPOCH_MILLISECONDS = 1_420_070_400_000


def to_snowflake(time: datetime) -> int:
    """Return the smallest snowflake (Discord's id) with this creation time."""
    return int(time.timestamp() * 1000) - EPOCH_MILLISECONDS << 22


class _Snowflakes:
    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> str:
        """Return a new id, greater than all former ones.

        Its upper bits are the milliseconds since Discord's epoch.
        """
        self._last = max(self._last + 1, int(time() * 1000) - EPOCH_MILLISECONDS << 22)
        return str(self._last)


create_id = _Snowflakes()
