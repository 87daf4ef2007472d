"""A process is killed at an await of a background job or a due schedule: one turn follows, and work begins once."""

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from chatrig.models import CallTool, ReceivedRequest
from core.store.schema import inbox, jobs, schedules
from tests.acceptance.platforms import BotConversation
from tests.chaos.runner import DatabaseProvider
from tests.core.turns.automation.recorded_jobs import STARTS_FILE
from tests.processes.crash_runs import CrashRun, check_crashes, fork_server, list_texts, provide_database
from tests.processes.fork_server import ForkServer

__all__ = ["fork_server", "provide_database"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

#: Modules at whose crash points the process is killed.
MODULES = (
    "core/turns/automation/job_runner.py",
    "core/turns/automation/jobs.py",
    "core/turns/automation/schedules.py",
    "core/tools/builtin/schedule.py",
    "core/turns/automation/tickets.py",
    "core/inbox/triggered.py",
    "core/tools/tool.py",
    "channels/turns/placing.py",
    "channels/slack/conversations.py",
    "channels/discord/conversations.py",
)

#: Minutes until a schedule is due.
SCHEDULE_MINUTES = 0.03


def answer(request: ReceivedRequest) -> Any:
    roles = [role for role, _ in request.messages]
    if "The background job" in request.text:
        return "interrupted" if "was interrupted" in request.text else "done"
    return "It runs." if roles[-1] == "tool" else [CallTool("count_stars", {}, id="call_1")]


class JobRun(CrashRun):
    """One run: a person asks for a job."""

    modules = MODULES
    prompt = "count the stars"
    tool = "tests.core.turns.automation.recorded_jobs:count_stars"
    respond = staticmethod(answer)

    async def _is_settled(self, conversation: BotConversation) -> bool:
        is_shown = list_texts(conversation)[-1:] in (["done"], ["interrupted"])
        return is_shown and await super()._is_settled(conversation)

    async def _find_faults(self, conversation: BotConversation) -> list[str]:
        starts = self.folder / STARTS_FILE
        count = len(starts.read_text().splitlines()) if starts.exists() else 0
        texts = list_texts(conversation)
        headers = [text for text in texts if "`count_stars`" in text]
        endings = [text for text in texts if text in ("done", "interrupted")]
        async with self.database.read() as connection:
            states = (await connection.execute(sa.select(jobs.c.state))).scalars().all()
            entries = (await connection.execute(sa.select(inbox.c.turn).where(inbox.c.kind == "job"))).scalars().all()
        faults = list[str]()
        if count > 1:
            faults.append(f"the work began {count} times")
        if len(headers) != 1 or len(endings) != 1 or texts.count("It runs.") != 1:
            faults.append(f"the bot shows {texts}")
        if list(states) != ["finished"] or len(entries) != 1 or not entries[0]:
            faults.append(f"the jobs are {states}, and the turns of their entries {entries}")
        return faults


def answer_schedule(request: ReceivedRequest) -> Any:
    if "[A scheduled task" in request.text:
        return "done"
    arguments = {"text": "count the stars", "in_minutes": SCHEDULE_MINUTES}
    return "Noted." if request.messages[-1][0] == "tool" else [CallTool("schedule", arguments, id="call_1")]


class ScheduleRun(JobRun):
    """One run: a person asks for a task that is due soon."""

    prompt = "later, count the stars"
    tool = "core.tools:schedule"
    respond = staticmethod(answer_schedule)

    async def _is_settled(self, conversation: BotConversation) -> bool:
        async with self.database.read() as connection:
            is_open = (await connection.execute(sa.select(schedules.c.id))).first() is not None
        return not is_open and await super()._is_settled(conversation)

    async def _find_faults(self, conversation: BotConversation) -> list[str]:
        texts = list_texts(conversation)
        headers = [text for text in texts if re.fullmatch(r"@(ada|Ada Lovelace) ⏰ count the stars(\n.*)?", text)]
        # after a crash, the schedule may have ended before the reply that shows it
        noted = [text for text in texts if re.fullmatch(r"Noted\.(\n\n⏰ count the stars: .*)?", text)]
        async with self.database.read() as connection:
            entries = sa.select(inbox.c.turn).where(inbox.c.kind == "schedule")
            found = (await connection.execute(entries)).scalars().all()
        is_shown = len(noted) == len(headers) == texts.count("done") == 1 and len(texts) == 3
        faults = [] if is_shown else [f"the bot shows {texts}"]
        return [*faults, *([] if len(found) == 1 and found[0] else [f"the turns of the entries are {found}"])]


@pytest.mark.parametrize("kind", [JobRun, ScheduleRun])
@pytest.mark.parametrize("workers", [1, 2])
async def test_work_has_one_end_whenever_its_process_is_killed(
    fork_server: ForkServer,
    provide_database: DatabaseProvider,
    tmp_path: Path,
    workers: int,
    kind: type[JobRun],
    request: Any,
) -> None:
    if workers == 2 and "sqlite" in request.node.callspec.id:
        pytest.skip("SQLite has one process")
    await check_crashes(kind, fork_server, provide_database, tmp_path, workers=workers)
