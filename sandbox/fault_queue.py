"""Faults that are to come: the same for both platforms, whatever they are there."""

from collections import deque
from collections.abc import Collection
from typing import Generic, Literal, Protocol, TypeVar

FaultKind = Literal["fail", "rate_limit", "lose_response", "delay"]


class Fault(Protocol):
    """A fault. Two that are asked for are two, though they be alike."""

    @property
    def kind(self) -> FaultKind: ...


F = TypeVar("F", bound=Fault)


class FaultQueue(Generic[F]):
    """Each call's faults, used up in the order in which they were asked for."""

    def __init__(self) -> None:
        self._pending: dict[str, deque[F]] = {}

    def add(self, calls: Collection[str], times: int, fault: F) -> None:
        """So many times; of several calls, it is the first one that is made."""
        for call in calls:
            self._pending.setdefault(call, deque()).extend([fault] * times)

    def take(self, call: str) -> F | None:
        """The fault that this call meets."""
        if not (pending := self._pending.get(call)):
            return None
        fault = pending.popleft()
        for others in self._pending.values():
            if others is not pending and fault in others:
                others.remove(fault)
        return fault

    def cancel(self, kind: FaultKind) -> None:
        """Those of this kind do not come."""
        for call, faults in self._pending.items():
            self._pending[call] = deque(fault for fault in faults if fault.kind != kind)

    def has_pending(self, kind: FaultKind) -> bool:
        """Whether one of this kind is still to come."""
        return any(fault.kind == kind for faults in self._pending.values() for fault in faults)

    def clear(self) -> None:
        """None comes."""
        self._pending.clear()
