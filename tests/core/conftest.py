"""Fixtures of the core's tests: a database that fails on demand, and its stores."""

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
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.service import SessionService
from core.store.database import Database, Rows
from core.store.schema import workers
from core.store.workers.lease import Lease
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from tests.conftest import get_database_url
from tests.fixtures import empty_databases as tables
from tests.fixtures.conversation import converse
from tests.fixtures.retry_waits import limited_wait

__all__ = ["converse"]

#: Models that users may select for the agent.
MODELS = ("gemini-default", "openai/other")


class FailingDatabase(Database):
    """Database whose next `failures` writes raise `StoreError`.

    Attributes:
        fails_reads: whether reads fail as well.
        recovered: set with the last failure.
    """

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

    async def run(self, statement: sa.Executable, **values: Any) -> Rows:
        if self.failures and (self.fails_reads or isinstance(statement, sa.UpdateBase)):
            async with self.write():
                pass
        return await super().run(statement, **values)


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a database operation to three tries with pauses of a millisecond."""
    monkeypatch.setattr(retry, "RETRY_WAIT", limited_wait(0.001, 0.001))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new SQLite file, then of an empty PostgreSQL database."""
    return get_database_url(request.param, request, tmp_path)


D = TypeVar("D", bound=Database)


@asynccontextmanager
async def open_database(database: D) -> AsyncIterator[D]:
    """Yield a database with all tables, and close it at the end of the context.

    PostgreSQL has the tables already.
    """
    if database.is_sqlite:
        await tables.create_tables(database)
    yield database
    await database.aclose()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[FailingDatabase]:
    async with open_database(FailingDatabase(database_url)) as database:
        yield database


@pytest.fixture
async def turns(database: FailingDatabase) -> TurnStore:
    return await create_turn_store(database)


async def create_turn_store(database: FailingDatabase, *, seconds: float = 30) -> TurnStore:
    """Return the turn store of a new worker, which takes a lease on the database.

    Args:
        seconds: the duration of the lease.
    """
    lease = Lease(database, seconds=seconds)
    await lease.acquire()
    agents = AgentRouter("app", {"app": AgentProfile("app", MODELS)})
    return TurnStore(database, lease, agents)


AgeLeases = Callable[[Database, float], Awaitable[None]]


@pytest.fixture
def age_leases(monkeypatch: pytest.MonkeyPatch) -> AgeLeases:
    """Return a function that moves all leases and the clock by some seconds.

    So a lease expires without a wait.
    """
    now, offset = event_loop.now, 0.0
    monkeypatch.setattr(event_loop, "now", lambda: now() + offset)

    async def age(database: Database, seconds: float) -> None:
        nonlocal offset
        offset += seconds
        async with database.write() as connection:
            await connection.execute(sa.update(workers).values(lease_expires_at=workers.c.lease_expires_at - seconds))

    return age


async def claim_turn(turns: TurnStore) -> Turn:
    (turn,) = await turns.claim(10)
    return turn


async def count_rows(database: Database, table: sa.Table) -> int:
    async with database.read() as connection:
        return int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())


async def complete_turn(turns: TurnStore, turn: Turn) -> None:
    """Store an answer for a turn, and end the turn as done."""
    await turns.save_answer(turn, "the answer", {})
    await turns.end(turn, "done")


@pytest.fixture
def inbox(database: FailingDatabase, turns: TurnStore) -> InboxStore:
    return InboxStore(database, turns, Worker(turns))


@pytest.fixture
def counter(tmp_path: Path) -> TokenCounter:
    return TokenCounter(tmp_path)


@pytest.fixture
def service(database: Database, counter: TokenCounter) -> SessionService:
    return SessionService(database, counter, agent="bot")
