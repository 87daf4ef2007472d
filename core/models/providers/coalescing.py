"""Coalescing of stream deltas: joins them, so that ADK gets fewer and longer ones.

ADK takes a third of a millisecond of CPU for each delta.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self, cast

from core.concurrency import event_loop
from core.errors import ProviderStreamError, ProviderTimeoutError
from core.models.provider import ModelRequest, Provider, ProviderEvent, join_text

#: Least seconds between two deltas of one stream.
MIN_INTERVAL_SECONDS = 0.03

#: Seconds between any two deltas of all streams: at most 700 a second, so that 200 streams get one each 0.28 s, and
#: never all of them in the same pass of the event loop.
DELTA_SPACING_SECONDS = 0.0014


class DeltaSchedule:
    """Times at which the streams of a process pass on text deltas, one after another.

    It only returns the times: each `ProviderStream` waits until its stream's next time, and joins the deltas that
    come meanwhile.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def next_delay(self) -> float:
        """Reserve a time for a stream's next text delta; return the seconds until then."""
        now = event_loop.now()
        self._last = max(now + MIN_INTERVAL_SECONDS, self._last + DELTA_SPACING_SECONDS)
        return self._last - now


class ProviderStream:
    """Events of one provider's stream, read by a task, with adjacent deltas of text or thought joined.

    The more streams run at the same time, the longer the deltas. The first delta is returned at once, and so is the
    rest when the stream has ended. Deltas with a signature are never joined. The end of the block closes the
    connection. Without a schedule, nothing is joined, and nothing waits for a time: the task then reads an event once
    the one before it is taken.
    """

    def __init__(
        self, provider: Provider, request: ModelRequest, idle_seconds: float, schedule: DeltaSchedule | None = None
    ) -> None:
        self._provider = provider
        self._request = request
        self._idle_seconds = idle_seconds
        self._schedule = schedule
        self._received = list[ProviderEvent]()
        self._batch = deque[ProviderEvent]()
        self._is_first = True
        self._has_news = asyncio.Event()
        self._is_taken = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read(), name=f"stream of {self._provider.name}")
        self._reader.add_done_callback(lambda _: self._has_news.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.cancel()
        await asyncio.wait([self._reader])

    async def read(self) -> ProviderEvent:
        """Return the next event.

        Raises:
            ProviderStreamError: the stream has ended.
            ProviderTimeoutError: no event came within `idle_seconds`.
            Exception: the error of the provider, after the events before it.
        """
        if not self._batch:
            if self._schedule is not None and not self._is_first:
                await asyncio.wait([self._reader], timeout=self._schedule.next_delay())
            self._is_first = False
            await self._wait_for_events()
            self._batch.extend(self._received)
            self._received.clear()
            self._is_taken.set()
        return self._batch.popleft()

    async def _wait_for_events(self) -> None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                while not (self._received or self._reader.done()):
                    self._has_news.clear()
                    await self._has_news.wait()
        except TimeoutError:
            message = f"{self._provider.name} sent nothing for {self._idle_seconds:g} seconds"
            raise ProviderTimeoutError(message) from None
        if not self._received:
            self._reader.result()
            raise ProviderStreamError(f"{self._provider.name} ended its stream before the answer was complete")

    async def _read(self) -> None:
        # `Provider.stream` is an async generator, and closing it closes the connection
        stream = cast(AsyncGenerator[ProviderEvent, None], self._provider.stream(self._request))
        async with aclosing(stream) as events:
            async for event in events:
                last = self._received[-1] if self._received and self._schedule is not None else None
                if (joined := join_text(last, event)) is not None:
                    self._received[-1] = joined
                else:
                    self._received.append(event)
                self._has_news.set()
                if self._schedule is None:
                    self._is_taken.clear()
                    await self._is_taken.wait()
