"""Owned asyncio tasks: drained at a stop, scoped to a block, periodic, or run with bounded concurrency."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from core.secret_redaction import traced

log = logging.getLogger(__name__)

T = TypeVar("T")


class Work:
    """What a stop waits for.

    Attributes:
        is_ending: whether nothing more is to be begun; set before `end`.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def under_way(self) -> Iterator[asyncio.Task[Any]]:
        """To be entered by the task that does it, which it gives."""
        task = asyncio.current_task()
        assert task is not None, "a client runs each event in a task"
        self._tasks.add(task)
        try:
            yield task
        finally:
            self._tasks.discard(task)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """A task of one's own that does it, from before it begins."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self, seconds: float) -> None:
        """Wait for what is under way, but no longer than so many seconds; what is not done then is cancelled."""
        await end(self._tasks, seconds)


async def end(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for tasks, but no longer than so many seconds; what is not done then is cancelled."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=seconds)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[asyncio.Task[None]]:
    """Do `work` for as long as this is entered."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def run_every(
    seconds: float, work: Callable[[], Awaitable[object]], *, what: str, retry_seconds: float | None = None
) -> None:
    """Call `work` now and then again after each pause, until cancelled. A failure is logged.

    Args:
        what: the log message of a failure, without its reason.
        retry_seconds: the pause after a failure, if it is another one.
    """
    while True:
        pause = seconds
        try:
            await work()
        except Exception as error:
            log.warning("%s: %s", what, traced(error))
            pause = seconds if retry_seconds is None else retry_seconds
        await asyncio.sleep(pause)


async def abreast(work: Callable[[T], Awaitable[None]], items: Iterable[T], many: int) -> None:
    """Do the work for each of the items, begun in their order, for so many at once.

    Raises:
        Exception: what the first one raises that fails; the others are ended, and no more is begun.
    """
    left = iter(items)

    async def go_on() -> None:
        for item in left:
            await work(item)

    tasks = [asyncio.create_task(go_on(), name="abreast") for _ in range(many)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
