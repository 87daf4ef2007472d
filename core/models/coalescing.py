"""Merges the deltas of the wire: each one that reaches ADK costs it a third of a millisecond of CPU."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from core.concurrency import event_loop
from core.models.provider import Provider, ProviderEvent, Request, Takes, Text, Thought

#: Seconds between two deltas of one stream, at the least.
LEAST_WINDOW = 0.03

#: Seconds between any two deltas that are passed on, whichever streams they are of: 700 a second and no more, so
#: that 200 streams get one each 0.28 s, and never all of them in the same pass of the event loop.
SPACING = 0.0014


class Slots:
    """The moments at which deltas may be passed on, for all streams together."""

    def __init__(self) -> None:
        self._last = 0.0

    def take(self) -> float:
        """Take the next one.

        Returns:
            Seconds from now.
        """
        now = event_loop.now()
        self._last = max(now + LEAST_WINDOW, self._last + SPACING)
        return self._last - now


class Merging:
    """A provider whose texts come in fewer and longer pieces, the more so the more streams are live.

    The first piece of a stream comes at once, and nothing is held back once the stream has ended. What bears a
    signature is never merged.

    Args:
        slots: shared with the other providers of the process.
    """

    def __init__(self, provider: Provider, slots: Slots | None = None) -> None:
        self._provider = provider
        self._slots = slots or Slots()

    @property
    def name(self) -> str:
        return self._provider.name

    def takes(self, model: str) -> Takes:
        return self._provider.takes(model)

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        pieces = _Pieces()
        reading = asyncio.create_task(self._read(request, pieces), name=f"stream of {self.name}")
        try:
            while await pieces.more():
                for piece in pieces.take():
                    yield piece
                if not reading.done():
                    await asyncio.wait([reading], timeout=self._slots.take())
            await reading  # what it raised, if it did
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def aclose(self) -> None:
        await self._provider.aclose()

    async def _read(self, request: Request, pieces: "_Pieces") -> None:
        try:
            events = cast(AsyncGenerator[ProviderEvent, None], self._provider.stream(request))
            async with aclosing(events):
                async for event in events:
                    pieces.add(event)
        finally:
            pieces.end()


class _Pieces:
    """What has been read and not yet been passed on."""

    def __init__(self) -> None:
        self._waiting: deque[ProviderEvent] = deque()
        self._some = asyncio.Event()
        self._is_ended = False

    def add(self, event: ProviderEvent) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(event, Text) and isinstance(last, Text) and last.signature is event.signature is None:
            self._waiting[-1] = Text(last.text + event.text)
        elif isinstance(event, Thought) and isinstance(last, Thought) and last.signature is event.signature is None:
            self._waiting[-1] = Thought(last.text + event.text)
        else:
            self._waiting.append(event)
        self._some.set()

    def end(self) -> None:
        self._is_ended = True
        self._some.set()

    async def more(self) -> bool:
        """Wait for a piece; false when there will be none."""
        await self._some.wait()
        return bool(self._waiting)

    def take(self) -> list[ProviderEvent]:
        taken, self._waiting = list(self._waiting), deque()
        if not self._is_ended:
            self._some.clear()
        return taken
