"""Benchmark of the session services: `make bench-sessions [LENGTHS="100 2000"]`.

It measures the duration of a turn by the length of the history. A turn of an ADK agent without tools is one
`get_session` and two `append_event`s. Each service is measured on a history of each length, in one run, on files in a
temporary folder and on a local PostgreSQL. The benchmark inserts the initial history directly, since the services would
take longer than the whole measurement.

A very long history has a process of its own: `InMemorySessionService` keeps it in memory, which slows all others.
"""

import asyncio
import gc
import logging
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.schemas.v1 import StorageEvent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncSession

from core.concurrency import gc_tuning
from core.models.tokens import TokenCounter
from core.sessions.codec import measure_event, to_row
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import messages
from tests.processes.postgres import PostgresServer

HISTORY_LENGTHS = (100, 2_000, 10_000, 100_000)

#: Maximum length of histories that share a process.
MAX_SHARED_LENGTH = 10_000

RECENT_EVENTS = 50

#: Limits of a trial: the number of turns, their seconds in sum, and the minimum number of turns.
MAX_TURNS, MAX_SECONDS, MIN_TURNS = 40, 15.0, 3

#: Maximum number of consecutive turns of a trial.
TURNS_PER_SLOT = 8

WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor "
APP, USER = "bench", "somebody"
BATCH_EVENTS = 1_000

Fill = Callable[[str, list[Event]], Awaitable[None]]
Close = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class SessionContender:
    """Measured session service, on a database of its own.

    Attributes:
        name: the name in the table.
        fill: inserts events directly into the storage of the session with an id.
        close: closes the service.
        configs: arguments of `get_session`, each measured separately; None loads the whole history.
    """

    name: str
    service: BaseSessionService
    fill: Fill
    close: Close
    configs: Sequence[GetSessionConfig | None] = (None, GetSessionConfig(num_recent_events=RECENT_EVENTS))


@dataclass(frozen=True)
class SessionFigures:
    """Figures of a session service at one length of the history, in milliseconds.

    Attributes:
        turn: the median duration of a turn.
        max_delay: the longest delay of the event loop.
    """

    turn: float
    max_delay: float


def build_event(number: int) -> Event:
    is_user = number % 2 == 0
    role, author = ("user", "user") if is_user else ("model", "agent")
    text = f"{number} " + WORDS * (2 if is_user else 6)
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(invocation_id=f"turn-{number // 2}", author=author, content=content)


async def create_parley(folder: str, url: str) -> SessionContender:
    database = Database(url)
    await migrate(database)
    counter = TokenCounter(Path(".parley/tiktoken"))

    async def fill(session: str, events: list[Event]) -> None:
        rows = []
        for event in events:
            words, tokens = measure_event(event)
            values = to_row(event, tokens=tokens + await counter.count(words))
            rows.append({"session": session, "generation": 1, **values})
        async with database.write() as connection:
            await connection.execute(sa.insert(messages), rows)

    service = SessionService(database, counter, agent="agent")
    return SessionContender(f"Parley, {folder}", service, fill, database.aclose, configs=(None,))


def create_adk_sqlite(path: Path) -> SessionContender:
    async def fill(session: str, events: list[Event]) -> None:
        insert = "INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)"
        with sqlite3.connect(path) as connection:
            connection.executemany(
                f"{insert} VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (e.id, APP, USER, session, e.invocation_id, e.timestamp, e.model_dump_json(exclude_none=True))
                    for e in events
                ),
            )
        connection.close()

    service = SqliteSessionService(str(path))
    return SessionContender("ADK SqliteSessionService", service, fill, service.close)


def create_adk_database(folder: str, url: str) -> SessionContender:
    service = DatabaseSessionService(url)

    async def fill(session: str, events: list[Event]) -> None:
        owner = Session(id=session, app_name=APP, user_id=USER)
        async with AsyncSession(service.db_engine) as database, database.begin():
            database.add_all([StorageEvent.from_event(owner, event) for event in events])

    return SessionContender(f"ADK DatabaseSessionService, {folder}", service, fill, service.close)


def create_adk_memory() -> SessionContender:
    service = InMemorySessionService()

    async def fill(session: str, events: list[Event]) -> None:
        service.sessions[APP][USER][session].events.extend(events)

    async def close() -> None:
        service.sessions.clear()

    return SessionContender("ADK InMemorySessionService", service, fill, close)


async def create_contenders(folder: Path, server: PostgresServer) -> list[SessionContender]:
    def postgres(name: str) -> str:
        return server.create_database(name).replace("postgresql://", "postgresql+asyncpg://")

    return [
        await create_parley("SQLite", f"sqlite+aiosqlite:///{folder / 'parley.db'}"),
        await create_parley("PostgreSQL", postgres("parley")),
        create_adk_sqlite(folder / "adk.db"),
        create_adk_database("SQLite", f"sqlite+aiosqlite:///{folder / 'adk-sqlalchemy.db'}"),
        create_adk_database("PostgreSQL", postgres("adk")),
        create_adk_memory(),
    ]


class SessionTrial:
    """Measurement of one session service with one config at one length of the history.

    The session `get_session_id(length)` must exist, with its history. Each turn adds two events to it.

    Args:
        length: the number of events in the history.
        max_turns: the maximum number of turns.
    """

    def __init__(
        self, contender: SessionContender, config: GetSessionConfig | None, length: int, max_turns: int
    ) -> None:
        self.name = contender.name if config is None else f"{contender.name}, {RECENT_EVENTS} events"
        self._service = contender.service
        self._config = config
        self._session = get_session_id(length)
        self._max_turns = max_turns
        self._times: list[float] = []
        self._max_delay = 0.0

    @property
    def is_due(self) -> bool:
        """True while the trial needs more turns.

        That is until it has `MIN_TURNS` and its turns took `MAX_SECONDS` in sum, or it has `max_turns`.
        """
        count = len(self._times)
        return count < min(MIN_TURNS, self._max_turns) or (count < self._max_turns and sum(self._times) < MAX_SECONDS)

    @property
    def figures(self) -> SessionFigures:
        return SessionFigures(statistics.median(self._times) * 1000, self._max_delay * 1000)

    async def warm_up(self) -> None:
        """Run one unmeasured turn, which fills the caches of the service."""
        await self._turn()

    async def run_turns(self) -> None:
        """Run up to `TURNS_PER_SLOT` turns; store their times and the longest delay.

        It ends earlier after a tenth of `MAX_SECONDS`.
        """
        gc.collect()
        gc_tuning.freeze_gc()  # same as in the ready bot
        until = time.perf_counter() + MAX_SECONDS / 10
        for _ in range(min(TURNS_PER_SLOT, self._max_turns - len(self._times))):
            delay_task = asyncio.create_task(measure_max_delay(), name="delay")
            await asyncio.sleep(0)
            self._times.append(await self._turn())
            await asyncio.sleep(0.002)  # reveals the delay of a turn that never waits
            delay_task.cancel()
            self._max_delay = max(self._max_delay, await delay_task)
            if time.perf_counter() > until:
                return

    async def _turn(self) -> float:
        """Run a turn (`get_session`, two `append_event`s), and return its seconds."""
        events = [build_event(number) for number in range(2)]
        began = time.perf_counter()
        session = await self._service.get_session(
            app_name=APP, user_id=USER, session_id=self._session, config=self._config
        )
        assert session is not None
        for event in events:
            await self._service.append_event(session, event)
        return time.perf_counter() - began


async def measure(
    contenders: Sequence[SessionContender], lengths: Sequence[int], *, max_turns: int = MAX_TURNS
) -> dict[str, list[SessionFigures]]:
    """Return each service's figures at each length, in the order of the lengths.

    A key is the contender's name, followed by `, N events` for a config that limits the events to `N`. All histories
    exist from the start, and the trials alternate, so that other work of the machine affects all alike. The services
    stay open.

    Args:
        lengths: the numbers of events in the histories, each once.
        max_turns: the maximum number of turns per trial.
    """
    trials = []
    for length in lengths:
        for contender in contenders:
            await contender.service.create_session(app_name=APP, user_id=USER, session_id=get_session_id(length))
            for start in range(0, length, BATCH_EVENTS):
                batch = [build_event(number) for number in range(start, min(start + BATCH_EVENTS, length))]
                await contender.fill(get_session_id(length), batch)
            trials += [SessionTrial(contender, config, length, max_turns) for config in contender.configs]
    for trial in trials:
        await trial.warm_up()
    while due := [trial for trial in trials if trial.is_due]:
        for trial in due:
            await trial.run_turns()
    figures: dict[str, list[SessionFigures]] = {}
    for trial in trials:
        figures.setdefault(trial.name, []).append(trial.figures)
    return figures


def get_session_id(length: int) -> str:
    return f"of-{length}-events"


async def measure_max_delay() -> float:
    """Sleep a millisecond repeatedly until cancelled; then return without an error.

    Returns:
        The longest delay of a sleep, in seconds.
    """
    max_delay, before = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            max_delay, before = max(max_delay, now - before - 0.001), now
    except asyncio.CancelledError:
        return max_delay


def compare_with_targets(figures: dict[str, list[SessionFigures]], lengths: Sequence[int]) -> Iterator[str]:
    """Yield lines of text that compare Parley at 2,000 events with its targets.

    There are none if the lengths lack 100 or 2,000.

    Args:
        figures: see `measure`; with ADK's durable services, whole and limited to recent events.
        lengths: the lengths of the figures, in their order.
    """
    if not {100, 2_000} <= set(lengths):
        return
    short, long = lengths.index(100), lengths.index(2_000)
    durable = {name: values[long].turn for name, values in figures.items() if "Sqlite" in name or "Database" in name}
    fastest = min(turn for name, turn in durable.items() if not name.endswith("events"))
    recent = min(turn for name, turn in durable.items() if name.endswith("events"))
    for name, parley in figures.items():
        if not name.startswith("Parley"):
            continue
        yield f"{name}, at 2,000 events, compared with the faster of ADK's durable services:"
        yield f"  whole history: ADK takes {fastest / parley[long].turn:.1f} times as long (target: 12)"
        yield f"  with {RECENT_EVENTS} events: {recent / parley[long].turn:.1f} times (target: 3)"
        yield f"  compared with Parley at 100 events: {parley[long].turn / parley[short].turn:.2f} times (target: 1.3)"
        yield f"  longest delay of the loop, at any length: {max(at.max_delay for at in parley):.1f} ms (target: 10)"


def table(figures: dict[str, list[SessionFigures]], lengths: Sequence[int]) -> Iterator[str]:
    yield f"{'a turn: get + 2 appends, ms (longest delay of the loop, ms)':60}" + "".join(f"{n:>18,}" for n in lengths)
    for name, values in figures.items():
        cells = (f"{at.turn:,.1f} ({at.max_delay:,.1f})" for at in values)
        yield f"{name:60}" + "".join(f"{cell:>18}" for cell in cells)


async def measure_in_process(lengths: Sequence[int]) -> dict[str, list[SessionFigures]]:
    """Measure all session services in this process, on local databases.

    Args:
        lengths: the numbers of events in the histories.

    Returns:
        See `measure`.
    """
    logging.disable(logging.WARNING)  # the truncation logs a line per load
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        contenders = await create_contenders(Path(folder), server)
        figures = await measure(contenders, lengths)
        for contender in contenders:
            await contender.close()
    return figures


def split_by_process(lengths: Sequence[int]) -> list[Sequence[int]]:
    """Return the lengths in groups: one process measures the lengths of a group.

    A length over `MAX_SHARED_LENGTH` is a group of its own.
    """
    shared = [length for length in lengths if length <= MAX_SHARED_LENGTH]
    return [group for group in (shared, *([length] for length in lengths if length > MAX_SHARED_LENGTH)) if group]


def _run_process(lengths: Sequence[int]) -> dict[str, list[SessionFigures]]:
    return asyncio.run(measure_in_process(lengths))


def main(lengths: Sequence[int]) -> None:
    figures: dict[str, list[SessionFigures]] = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as process:
        for group in split_by_process(lengths):
            for name, values in process.submit(_run_process, group).result().items():
                figures.setdefault(name, []).extend(values)
    print(*table(figures, lengths), *compare_with_targets(figures, lengths), sep="\n")


if __name__ == "__main__":
    main(sorted(int(length) for length in sys.argv[1:]) or HISTORY_LENGTHS)
