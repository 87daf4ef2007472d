"""What the core's tests stand on: a database that can be told to fail, and the rooms around it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency import event_loop, retry
from core.errors import StoreError
from core.inbox.store import InboxStore
from core.models.tokens import TokenCounter
from core.sessions.routing import AgentProfile, AgentRouter
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.fast_path import Statement
from core.store.schema import workers
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from core.workers.lease import Lease
from tests.fixtures import empty_databases as tables
from tests.fixtures.conversation import converse
from tests.fixtures.retry_waits import limited_wait

__all__ = ["converse"]

#: What may be chosen for the agent.
MODELS = ("gemini-default", "openai/other")


class Faulty(Database):
    """A database that fails a number of times: its writes, or its reads too."""

    failures = 0
    fails_reads = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.recovered = asyncio.Event()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        if self.failures:
            self.failures -= 1
            if not self.failures:
                self.recovered.set()
            raise StoreError("out of reach")
        async with super().write() as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        if self.failures and self.fails_reads:
            async with self.write():
                pass
        async with super().read() as connection:
            yield connection

    async def update(self, statement: sa.Update) -> int:
        if self.failures:
            async with self.write():
                pass
        return await super().update(statement)

    async def run(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        if self.failures and (self.fails_reads or statement.compile_for(self.engine.dialect).writes):
            async with self.write():
                pass
        return await super().run(statement, **values)


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a database operation fail after its third try."""
    monkeypatch.setattr(retry, "RETRY_WAIT", limited_wait(0.001, 0.001))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of either kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"


D = TypeVar("D", bound=Database)


@asynccontextmanager
async def with_tables(database: D) -> AsyncIterator[D]:
    """A database with all tables, and closed in the end: one of PostgreSQL has them already."""
    if database.is_sqlite:
        await tables.create_tables(database)
    yield database
    await database.aclose()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Faulty]:
    async with with_tables(Faulty(database_url)) as database:
        yield database


@pytest.fixture
async def turns(database: Faulty) -> TurnStore:
    return await worker_on(database)


async def worker_on(database: Faulty, *, seconds: float = 30) -> TurnStore:
    """The turns as a worker sees them that has just begun."""
    lease = Lease(database, seconds=seconds)
    await lease.acquire()
    agents = AgentRouter("app", {"app": AgentProfile("app", MODELS)})
    return TurnStore(database, lease, agents)


Passes = Callable[[Database, float], Awaitable[None]]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Lets so many seconds of all leases pass, and of those who have them, without waiting for that."""
    now, passed = event_loop.now, 0.0
    monkeypatch.setattr(event_loop, "now", lambda: now() + passed)

    async def passes(database: Database, seconds: float) -> None:
        nonlocal passed
        passed += seconds
        async with database.write() as connection:
            await connection.execute(sa.update(workers).values(lease_expires_at=workers.c.lease_expires_at - seconds))

    return passes


async def done(turns: TurnStore, turn: Turn) -> None:
    """The turn comes to its good end."""
    await turns.save_answer(turn, "the answer", {})
    await turns.end(turn, "done")


async def never(turn: Turn) -> None:
    raise AssertionError("this worker does not run")


@pytest.fixture
def inbox(database: Faulty, turns: TurnStore) -> InboxStore:
    return InboxStore(database, turns, Worker(turns, never))


@pytest.fixture
def counter(tmp_path: Path) -> TokenCounter:
    return TokenCounter(tmp_path)


@pytest.fixture
def service(database: Database, counter: TokenCounter) -> SessionService:
    return SessionService(database, counter, agent="bot")
