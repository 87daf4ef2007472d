"""Asyncio tasks: tracked until shutdown, bound to a block, periodic, concurrent."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundTasks:
    """Set of background tasks that are awaited at shutdown.

    Attributes:
        is_stopping: whether no new task may begin. The owner sets it before `drain`, and checks it before each task;
            this class does not.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def track_current(self) -> Iterator[asyncio.Task[Any]]:
        task = asyncio.current_task()
        assert task is not None, "a client runs each event in a task"
        self._tasks.add(task)
        try:
            yield task
        finally:
            self._tasks.discard(task)

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run a coroutine in a tracked task, which logs an exception with `name` and does not raise it."""
        task = asyncio.create_task(_log_errors(work, name), name=name)
        self.add(task)
        return task

    async def drain(self, seconds: float) -> None:
        """Drain the tracked tasks: see `drain_tasks`."""
        await drain_tasks(self._tasks, seconds)


async def _log_errors(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception as error:  # asyncio would log it late, and with its text
        log.error("%s failed: %s", name, format_error(error))


async def drain_tasks(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait at most `seconds` for tasks to end, then cancel the unfinished ones.

    It waits at most `seconds` more for the end of the cancelled tasks. Exceptions of the tasks are neither raised nor
    logged.
    """
    if not tasks:
        return
    _, unfinished = await asyncio.wait(tasks, timeout=seconds)
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished, timeout=seconds)


@asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` in a task during the block, and cancel the task when the block ends.

    The end of the cancelled task is awaited. Exceptions of `work` are neither raised nor logged here: the task has
    them.
    """
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def run_every(
    seconds: float, work: Callable[[], Awaitable[object]], *, failure: str, retry_seconds: float | None = None
) -> None:
    """Call `work` now and after each pause, until cancelled; exceptions are logged.

    Args:
        seconds: the pause after a success.
        failure: the log message of a failure, without its reason.
        retry_seconds: the pause after a failure; None for `seconds`.
    """
    while True:
        pause = seconds
        try:
            await work()
        except Exception as error:
            log.warning("%s: %s", failure, format_error(error))
            pause = seconds if retry_seconds is None else retry_seconds
        await asyncio.sleep(pause)


async def run_concurrently(work: Callable[[T], Awaitable[None]], items: Iterable[T], limit: int) -> None:
    """Call `work` for each item, in order, with at most `limit` calls at a time.

    Raises:
        Exception: the first exception of `work`; the other calls are cancelled, and no further call begins.
    """
    remaining = iter(items)

    async def run_rest() -> None:
        for item in remaining:
            await work(item)

    tasks = [asyncio.create_task(run_rest(), name="concurrent") for _ in range(limit)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
