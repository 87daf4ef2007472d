"""What a platform has told, remembered for a while, so that it is not asked all the time."""

import time
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: How much is remembered of a kind; of more, what was told first goes.
MOST = 10_000


class Remembered(Generic[K, V]):
    """Things of one kind, by what they are asked for by.

    Args:
        seconds: for how long one is taken to be the same.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._told = dict[K, tuple[V, float]]()

    def is_fresh(self, key: K) -> bool:
        """Whether it was told a while ago at most, and need not be asked for."""
        return key in self._told and time.monotonic() - self._told[key][1] < self._seconds

    def get(self, key: K) -> V | None:
        """What was told last, however long ago; none if nothing was."""
        return self._told[key][0] if key in self._told else None

    def keep(self, key: K, value: V) -> V:
        """Remember what is told now."""
        if key not in self._told and len(self._told) >= MOST:
            self._told.pop(next(iter(self._told)))
        self._told[key] = value, time.monotonic()
        return value
