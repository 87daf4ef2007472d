"""Merges the deltas of the wire: each one that reaches ADK costs it a third of a millisecond of CPU."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from core.models.provider import Provider, ProviderEvent, Request, Text, Thought

#: Seconds between two deltas of one stream, at the least.
LEAST_WINDOW = 0.03

#: By how many seconds each live stream widens the window of all: 200 streams get 0.3 s, and all of them
#: together no more than 700 deltas a second.
WINDOW_PER_STREAM = 0.0014


class Merging:
    """A provider whose texts come in fewer and longer pieces, the more so the more streams are live.

    The first piece of a stream comes at once, and nothing is held back once the stream has ended. What bears a
    signature is never merged.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._live = 0

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def window(self) -> float:
        """Seconds between two deltas of one stream, now."""
        return max(LEAST_WINDOW, self._live * WINDOW_PER_STREAM)

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        pieces = _Pieces()
        self._live += 1
        reading = asyncio.create_task(self._read(request, pieces), name=f"stream of {self.name}")
        try:
            while await pieces.more():
                for piece in pieces.take():
                    yield piece
                await pieces.ended_within(self.window)
            await reading  # what it raised, if it did
        finally:
            self._live -= 1
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
        self._ended = asyncio.Event()

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
        self._ended.set()
        self._some.set()

    async def more(self) -> bool:
        """Wait for a piece; false when there will be none."""
        await self._some.wait()
        return bool(self._waiting)

    def take(self) -> list[ProviderEvent]:
        taken, self._waiting = list(self._waiting), deque()
        if not self._ended.is_set():
            self._some.clear()
        return taken

    async def ended_within(self, seconds: float) -> None:
        """Let pieces gather for some seconds, or until there will be no more."""
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return
