"""A reply while it is being said: what the model streams goes in, what the platform shows comes out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from channels.channel import Chunk, Plan, Priority, Surface
from channels.planner import Planner
from channels.words import PLACEHOLDER

#: Seconds after which a tick that the platform's budget did not allow is tried again.
TICK_RETRY = 0.3

#: Seconds that a call in flight has to end when nobody waits for the reply any more.
ABANDON_TIMEOUT = 30.0

#: Awaited with the ids of all the reply's messages whenever they change.
Keep = Callable[[Sequence[str]], Awaitable[None]]


class Reply:
    """One reply on one surface.

    What is fed is shown by a task of its own, which always shows the newest text: the model is never held up
    by the platform, and a call to the platform is never cancelled.

    Args:
        known: the ids of the messages that stand already.
        keep: awaited with the ids of all its messages whenever they change.
    """

    def __init__(self, surface: Surface, *, known: Sequence[str] = (), keep: Keep) -> None:
        self._surface = surface
        self._known = list(known)
        self._keep = keep
        self._planner = Planner(surface.limits)
        self._status = ""
        self._final: Priority | None = None
        self._abandoned = False
        self._changed = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        return self._planner.text

    async def __aenter__(self) -> Self:
        """Begin to show: first a placeholder."""
        self._changed.set()
        self._writer = asyncio.create_task(self._write(), name="reply")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what was not closed: the call in flight ends by itself, and no other is made."""
        if self._writer is None:
            return
        self._abandoned = True
        self._changed.set()
        await asyncio.wait([self._writer], timeout=ABANDON_TIMEOUT)
        self._writer.cancel()
        if self._writer.done() and not self._writer.cancelled():
            self._writer.exception()  # whoever closed it has it; of a reply that nobody closes, nobody wants it

    def feed(self, delta: str) -> None:
        self._planner.feed(delta)
        self._status = ""
        self._changed.set()

    def replace(self, text: str) -> None:
        self._planner.replace(text)
        self._changed.set()

    def status(self, line: str) -> None:
        """Show `line` under the text until more of it comes."""
        self._status = line
        self._changed.set()

    async def close(self, text: str, priority: Priority = Priority.FINAL) -> None:
        """Show `text`, whole, as the reply's last word; returns when the platform has confirmed it.

        Raises:
            SurfaceError: it cannot be shown.
        """
        self._status, self._final = "", priority
        self._planner.replace(text)
        self._changed.set()
        assert self._writer is not None, "a reply is closed inside its `async with`"
        await asyncio.shield(self._writer)

    async def _write(self) -> None:
        priority, begun = Priority.PROGRESS, False
        while not self._abandoned:
            self._changed.clear()
            closing = self._final is not None
            plan = self._plan(priority if self._final is None else self._final)
            shown = await self._surface.show(plan, tuple(self._known), self._record)
            if shown and len(self._known) > len(plan.chunks):
                del self._known[len(plan.chunks) :]
                await self._keep(self._known)
            if not begun:
                await self._surface.begun()
                begun = True
            if closing and shown and not self._changed.is_set():
                return
            priority = Priority.TICK
            try:
                await asyncio.wait_for(self._changed.wait(), None if shown else TICK_RETRY)
            except TimeoutError:
                continue

    def _plan(self, priority: Priority) -> Plan:
        plan = self._planner.plan(priority)
        if not plan.chunks:
            return Plan([Chunk(0, 0, self._status or PLACEHOLDER)], priority)
        if self._status:
            *front, last = plan.chunks
            return Plan([*front, Chunk(last.start, last.end, f"{last.text}\n\n{self._status}")], priority)
        return plan

    async def _record(self, position: int, message_id: str) -> None:
        self._known[position:] = [message_id, *self._known[position + 1 :]]
        await self._keep(self._known)
