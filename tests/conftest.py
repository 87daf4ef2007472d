"""What all tests stand on: how long they look for what nobody thought of, and a PostgreSQL of their own.

`make test ARGS="--hypothesis-profile thorough"` looks longer.
"""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import settings
from sqlalchemy.engine import Dialect

from core.store.statement import Prepared, Statement
from sandbox.postgres import PostgresSandbox
from tests import tables, trust

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker is left alone with it in the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tables that tests have made, each with `record_property("table", ...)`."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for table in (value for name, value in report.user_properties if name == "table"):
            terminalreporter.section(report.nodeid)
            terminalreporter.write_line(str(table))


@pytest.fixture(scope="session", autouse=True)
def _once_for_all() -> Iterator[None]:
    """What each process does once is done once for all tests: certificates are read, statements compiled."""
    prepared, known = Statement.prepared, dict[tuple[Statement, str], Prepared]()

    def once(self: Statement, dialect: Dialect) -> Prepared:
        key = (self, dialect.name)
        if key not in known:
            known[key] = prepared(self, dialect)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        trust.share(patch.setattr)
        patch.setattr(Statement, "prepared", once)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresSandbox]:
    """A server for all tests of a process."""
    with PostgresSandbox() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresSandbox) -> str:
    """Of a database with all tables, for one test after the other."""
    url = driven(postgres_server.create("tests"))
    with asyncio.Runner() as runner:
        runner.run(tables.migrated(url))
    return url


@pytest.fixture
def postgres(postgres_url: str) -> str:
    """The URL of a database with all tables and nothing in them."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(tables.empty(postgres_url))
    return postgres_url


def driven(url: str) -> str:
    """The URL as SQLAlchemy has it."""
    return url.replace("postgresql://", "postgresql+asyncpg://")
