"""Discord's ids, which tell when they were made."""

from time import time

#: What Discord counts its milliseconds from: the first second of 2015.
EPOCH_MILLISECONDS = 1_420_070_400_000


class _Snowflakes:
    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> str:
        """A snowflake: the milliseconds since `EPOCH` in its upper bits; each is greater than the one before."""
        self._last = max(self._last + 1, int(time() * 1000) - EPOCH_MILLISECONDS << 22)
        return str(self._last)


create_id = _Snowflakes()
