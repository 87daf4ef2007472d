"""What is done in tasks that nobody waits for but a stop: a client, say, keeps none of those in which it tells."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any


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
