"""Cost of a turn in the session service by length of the history: `make bench-sessions [LENGTHS="100 2000"]`.

A plain turn of an ADK agent is one `get_session` and two `append_event`s. Each service is measured on a history of
each length, in one run, on files in a temporary folder and on a local PostgreSQL. The initial history is inserted
directly, since the services would take longer than the whole measurement.

A very long history has a process of its own: one service keeps it in memory, which slows all others.
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

from core.concurrency import gc_tuning as garbage
from core.models.tokens import TokenCounter
from core.sessions.codec import measure_event, to_columns, to_row
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.store.schema import messages
from sandbox.postgres import PostgresSandbox

LENGTHS = (100, 2_000, 10_000, 100_000)

#: Maximum length of histories that share a process.
LONG = 10_000

RECENT = 50

#: Number of turns per length, their limit in seconds, and the minimum number.
ROUNDS, SECONDS, FEWEST = 40, 15.0, 3

#: Number of consecutive turns of an entrant.
SPELL = 8

WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor "
APP, USER = "bench", "somebody"
BATCH = 1_000

Fill = Callable[[str, list[Event]], Awaitable[None]]
Stop = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Contender:
    """Session service on a database of its own.

    Attributes:
        fill: inserts events into a session directly.
        configs: arguments of `get_session`, each measured separately.
    """

    name: str
    service: BaseSessionService
    fill: Fill
    stop: Stop
    configs: Sequence[GetSessionConfig | None] = (None, GetSessionConfig(num_recent_events=RECENT))


@dataclass(frozen=True)
class Figures:
    """Median milliseconds of a turn, and of the longest stall of the event loop."""

    turn: float
    stall: float


def event(number: int) -> Event:
    is_user = number % 2 == 0
    role, author = ("user", "user") if is_user else ("model", "agent")
    text = f"{number} " + WORDS * (2 if is_user else 6)
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(invocation_id=f"turn-{number // 2}", author=author, content=content)


async def parley(where: str, url: str) -> Contender:
    database = Database(url)
    await migrate(database)
    counter = TokenCounter(Path(".parley/tiktoken"))

    async def fill(session: str, events: list[Event]) -> None:
        rows = []
        for said in events:
            words, tokens = measure_event(said)
            values = to_columns(to_row(said), tokens + await counter.count(words))
            rows.append({"session": session, "generation": 1, **values})
        async with database.write() as connection:
            await connection.execute(sa.insert(messages), rows)

    service = SessionService(database, counter, agent="agent")
    return Contender(f"Parley, {where}", service, fill, database.aclose, configs=(None,))


def adk_sqlite(path: Path) -> Contender:
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
    return Contender("ADK SqliteSessionService", service, fill, service.close)


def adk_database(where: str, url: str) -> Contender:
    service = DatabaseSessionService(url)

    async def fill(session: str, events: list[Event]) -> None:
        owner = Session(id=session, app_name=APP, user_id=USER)
        async with AsyncSession(service.db_engine) as database, database.begin():
            database.add_all([StorageEvent.from_event(owner, said) for said in events])

    return Contender(f"ADK DatabaseSessionService, {where}", service, fill, service.close)


def adk_memory() -> Contender:
    service = InMemorySessionService()

    async def fill(session: str, events: list[Event]) -> None:
        service.sessions[APP][USER][session].events.extend(events)

    async def stop() -> None:
        service.sessions.clear()

    return Contender("ADK InMemorySessionService", service, fill, stop)


async def contenders(folder: Path, server: PostgresSandbox) -> list[Contender]:
    def postgres(name: str) -> str:
        return server.create_database(name).replace("postgresql://", "postgresql+asyncpg://")

    return [
        await parley("SQLite", f"sqlite+aiosqlite:///{folder / 'parley.db'}"),
        await parley("PostgreSQL", postgres("parley")),
        adk_sqlite(folder / "adk.db"),
        adk_database("SQLite", f"sqlite+aiosqlite:///{folder / 'adk-sqlalchemy.db'}"),
        adk_database("PostgreSQL", postgres("adk")),
        adk_memory(),
    ]


class Entrant:
    """Contender with one config at one length."""

    def __init__(self, contender: Contender, config: GetSessionConfig | None, length: int, rounds: int) -> None:
        self.name = contender.name if config is None else f"{contender.name}, {RECENT} events"
        self._service = contender.service
        self._config = config
        self._session = session_of(length)
        self._rounds = rounds
        self._times: list[float] = []
        self._stall = 0.0

    @property
    def is_due(self) -> bool:
        count = len(self._times)
        return count < min(FEWEST, self._rounds) or (count < self._rounds and sum(self._times) < SECONDS)

    @property
    def figures(self) -> Figures:
        return Figures(statistics.median(self._times) * 1000, self._stall * 1000)

    async def begin(self) -> None:
        """Run an unmeasured turn, which fills the caches."""
        await self._turn()

    async def go_on(self) -> None:
        """Run some turns."""
        gc.collect()
        garbage.freeze_gc()  # same as in the ready bot
        until = time.perf_counter() + SECONDS / 10
        for _ in range(min(SPELL, self._rounds - len(self._times))):
            stall = asyncio.create_task(longest_stall(), name="stall")
            await asyncio.sleep(0)
            self._times.append(await self._turn())
            await asyncio.sleep(0.002)  # reveals the stall of a turn that never waits
            stall.cancel()
            self._stall = max(self._stall, await stall)
            if time.perf_counter() > until:
                return

    async def _turn(self) -> float:
        """Run a turn, and return its seconds."""
        said = [event(number) for number in range(2)]
        began = time.perf_counter()
        session = await self._service.get_session(
            app_name=APP, user_id=USER, session_id=self._session, config=self._config
        )
        assert session is not None
        for one in said:
            await self._service.append_event(session, one)
        return time.perf_counter() - began


async def measure(
    contenders: Sequence[Contender], lengths: Sequence[int], *, rounds: int = ROUNDS
) -> dict[str, list[Figures]]:
    """Return each contender's figures at each length.

    All histories exist from the start, and the entrants alternate, so that other work of the machine affects all alike.
    """
    entrants = []
    for length in lengths:
        for contender in contenders:
            await contender.service.create_session(app_name=APP, user_id=USER, session_id=session_of(length))
            for start in range(0, length, BATCH):
                batch = [event(number) for number in range(start, min(start + BATCH, length))]
                await contender.fill(session_of(length), batch)
            entrants += [Entrant(contender, config, length, rounds) for config in contender.configs]
    for entrant in entrants:
        await entrant.begin()
    while due := [entrant for entrant in entrants if entrant.is_due]:
        for entrant in due:
            await entrant.go_on()
    figures: dict[str, list[Figures]] = {}
    for entrant in entrants:
        figures.setdefault(entrant.name, []).append(entrant.figures)
    return figures


def session_of(length: int) -> str:
    return f"of-{length}-events"


async def longest_stall() -> float:
    """Measure until cancelled: the longest delay of a sleep of a millisecond, in seconds."""
    worst, before = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            worst, before = max(worst, now - before - 0.001), now
    except asyncio.CancelledError:
        return worst


def verdicts(figures: dict[str, list[Figures]], lengths: Sequence[int]) -> Iterator[str]:
    """Return the targets and the measured figures."""
    if not {100, 2_000} <= set(lengths):
        return
    short, long = lengths.index(100), lengths.index(2_000)
    durable = {name: of[long].turn for name, of in figures.items() if "Sqlite" in name or "Database" in name}
    whole = min(turn for name, turn in durable.items() if not name.endswith("events"))
    recent = min(turn for name, turn in durable.items() if name.endswith("events"))
    for name, ours in figures.items():
        if not name.startswith("Parley"):
            continue
        yield f"{name}, at 2,000 events, beside the quicker of ADK's durable services:"
        yield f"  as it comes, it takes {whole / ours[long].turn:.1f} times as long (to be reached: 12)"
        yield f"  told to load {RECENT} events, {recent / ours[long].turn:.1f} times (3)"
        yield f"  of its own time at 100 events: {ours[long].turn / ours[short].turn:.2f} (1.3)"
        yield f"  longest stall of the loop, at any length: {max(of.stall for of in ours):.1f} ms (10)"


def table(figures: dict[str, list[Figures]], lengths: Sequence[int]) -> Iterator[str]:
    yield f"{'a turn: get + 2 appends, ms (longest stall of the loop, ms)':60}" + "".join(f"{n:>18,}" for n in lengths)
    for name, of in figures.items():
        cells = (f"{at.turn:,.1f} ({at.stall:,.1f})" for at in of)
        yield f"{name:60}" + "".join(f"{cell:>18}" for cell in cells)


async def in_one_process(lengths: Sequence[int]) -> dict[str, list[Figures]]:
    """Measure all contenders at these lengths on local databases."""
    logging.disable(logging.WARNING)  # the truncation logs a line per load
    with tempfile.TemporaryDirectory() as folder, PostgresSandbox() as server:
        entered = await contenders(Path(folder), server)
        figures = await measure(entered, lengths)
        for contender in entered:
            await contender.stop()
    return figures


def processes(lengths: Sequence[int]) -> list[Sequence[int]]:
    """Return the lengths of each process."""
    in_turn = [length for length in lengths if length <= LONG]
    return [of for of in (in_turn, *([length] for length in lengths if length > LONG)) if of]


def _measured(lengths: Sequence[int]) -> dict[str, list[Figures]]:
    return asyncio.run(in_one_process(lengths))


def main(lengths: Sequence[int]) -> None:
    figures: dict[str, list[Figures]] = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as process:
        for of in processes(lengths):
            for name, theirs in process.submit(_measured, of).result().items():
                figures.setdefault(name, []).extend(theirs)
    print(*table(figures, lengths), *verdicts(figures, lengths), sep="\n")


if __name__ == "__main__":
    main(sorted(int(length) for length in sys.argv[1:]) or LENGTHS)
