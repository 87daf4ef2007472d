"""How long each call of a tool takes: calls that are made side by side end in one event, and each at its own time."""

from time import monotonic


class Stopwatch:
    """The times of one run's calls, by their ids."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def begin(self, call_id: str) -> None:
        self._began[call_id] = monotonic()

    def end(self, call_id: str) -> None:
        if (began := self._began.get(call_id)) is not None:
            self._took[call_id] = monotonic() - began

    def seconds(self, call_id: str) -> float | None:
        """How long a call took; None of one that was not made here, or has not ended."""
        return self._took.get(call_id)
