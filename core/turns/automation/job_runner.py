"""Runner of background jobs: their tasks in this process, and the end of jobs whose worker died."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from core.concurrency.retry import retry_for_a_day
from core.concurrency.tasks import BackgroundTasks, run_every
from core.errors import StoreError
from core.messages.inbox_message import InboxMessage
from core.store.workers.lease import Lease
from core.turns.automation.jobs import FinishResult, JobResult, JobStore, ToolInvocation, new_job_id

log = logging.getLogger(__name__)

#: The most hours of a job.
MAX_HOURS = 24.0

#: The most jobs whose functions are not async, and so need a thread each.
MAX_THREADS = 16

#: Seconds between two checks of the stored jobs.
CHECK_SECONDS = 3.0

#: The work of a job.
Work = Callable[[], Awaitable[JobResult]]


class JobRunner:
    """Jobs of this worker, each in a task.

    A job that is cancelled in the database, by a person or a reset, loses its task. A job whose worker died, or that
    has no task because its start failed, ends as interrupted.

    Args:
        public_url: address at which other programs reach this process; empty if they do not.

    Attributes:
        store: the stored jobs of all workers.
        threads: a slot for each job that needs a thread, so that other tools find one.
    """

    def __init__(self, store: JobStore, lease: Lease, *, public_url: str = "") -> None:
        self.store = store
        self.public_url = public_url
        self.threads = asyncio.Semaphore(MAX_THREADS)
        self._lease = lease
        self._background = BackgroundTasks()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._open = set[str]()  # from before a job is stored until after its end is

    async def start(
        self, call: ToolInvocation, message: InboxMessage, work: Work, *, target: str = "", is_shared: bool = False
    ) -> str:
        """Store the job of a call, begin its work unless an earlier attempt has, and return the job's id.

        Raises:
            SessionResetError, TurnLostError, StoreError, ToolError: see `JobStore.create`; the work does not begin.
        """
        own_id = new_job_id()
        self._open.add(own_id)
        id_ = ""
        try:
            id_ = await self.store.create(
                own_id, call, message, target=target, is_shared=is_shared, owner=self._lease.worker_id
            )
        finally:
            if id_ != own_id:
                self._open.discard(own_id)
        if id_ == own_id:
            task = self._background.start(self._run(id_, call.tool, work), name=f"job {id_}")
            self._tasks[id_] = task
            task.add_done_callback(lambda _: self._forget(own_id))
        return id_

    async def cancel(self, id_: str, *, author: str | None = None) -> bool:
        """End a running job without a result, and return whether it ran: see `JobStore.cancel`."""
        was_running = await self.store.cancel(id_, author=author)
        if was_running and (task := self._tasks.get(id_)) is not None:
            task.cancel()
        return was_running

    async def run_watch(self) -> None:
        """End the jobs of dead workers, and the tasks of cancelled jobs, until cancelled; log errors."""
        await run_every(CHECK_SECONDS, self._check, failure="the background jobs cannot be checked")

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for the tasks to end, then cancel them: another worker reports them as interrupted."""
        await self._background.drain(seconds)

    async def _check(self) -> None:
        tasks = dict(self._tasks)
        open_before = set(self._open)
        watched = await self.store.list_watched(self._lease)
        for id_ in tasks.keys() - watched.keys():
            tasks[id_].cancel()
        for id_, is_own in watched.items():
            if not (is_own and id_ in open_before | self._open):  # it may have begun or ended meanwhile
                log.warning("job %s was interrupted", id_)
                await self.store.finish(id_, JobResult("", "interrupted"))

    async def _run(self, id_: str, tool: str, work: Work) -> None:
        """Do a job, and store its result; a cancelled job stores nothing."""
        try:
            async with asyncio.timeout(MAX_HOURS * 3600) as time:
                result = await work()
        except TimeoutError:
            if not time.expired():
                raise
            result = JobResult(f"{tool} did not end within {MAX_HOURS:g} hours, and may have taken effect", "failed")
        del self._tasks[id_]  # from here, no check cancels it
        await self._finish(id_, result)

    def _forget(self, id_: str) -> None:
        self._tasks.pop(id_, None)
        self._open.discard(id_)

    async def _finish(self, id_: str, result: JobResult) -> None:
        finish = partial(self.store.finish, id_, result)
        finished = await retry_for_a_day(finish, StoreError, failure=f"the result of job {id_} is not stored yet")
        if finished is FinishResult.CANCELLED:
            log.info("job %s was cancelled: its result is dropped", id_)
