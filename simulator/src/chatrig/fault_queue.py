"""Queue of the faults that a test or user sets for the next API calls."""

from collections import deque
from collections.abc import Collection
from typing import Generic, Literal, Protocol, TypeVar

FaultKind = Literal["fail", "rate_limit", "lose_response", "delay"]


class Fault(Protocol):
    """Fault of an API call.

    Queues compare faults by identity, so equal ones are separate.

    Attributes:
        kind: an error response, a rate limit, a lost response, or a delay.
    """

    @property
    def kind(self) -> FaultKind: ...


F = TypeVar("F", bound=Fault)


class FaultQueue(Generic[F]):
    """Pending faults by API call, first in, first out.

    An API call is named by its Slack method or its Discord route.
    """

    def __init__(self) -> None:
        self._pending: dict[str, deque[F]] = {}

    def add(self, calls: Collection[str], times: int, fault: F) -> None:
        """Queue a fault for the next `times` requests to any of the `calls`.

        The fault is queued for each call; the first request that gets it removes it from the other calls.
        """
        for call in calls:
            self._pending.setdefault(call, deque()).extend([fault] * times)

    def take(self, call: str) -> F | None:
        """Remove and return the next fault of an API call; None if it has none."""
        if not (pending := self._pending.get(call)):
            return None
        fault = pending.popleft()
        for others in self._pending.values():
            if others is not pending and fault in others:
                others.remove(fault)
        return fault

    def cancel(self, kind: FaultKind) -> None:
        """Remove all pending faults of this kind."""
        for call, faults in self._pending.items():
            self._pending[call] = deque(fault for fault in faults if fault.kind != kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Return whether a fault of this kind is pending."""
        return any(fault.kind == kind for faults in self._pending.values() for fault in faults)

    def clear(self) -> None:
        self._pending.clear()
