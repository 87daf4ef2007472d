"""What all tests stand on: how long they look for what nobody thought of, and a PostgreSQL of their own.

`make test ARGS="--hypothesis-profile thorough"` looks longer; with `--outage 60`, a database that goes away is away for
a minute.
"""

import asyncio
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from core.store.database import Database
from core.store.migrate import migrate
from sandbox.postgres import PostgresSandbox

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outage", type=float, default=6.0, help="seconds for which a database that goes away is away")


@pytest.fixture(scope="session")
def outage(pytestconfig: pytest.Config) -> float:
    """Seconds for which a database that goes away is away: longer than it takes to notice."""
    return float(pytestconfig.getoption("outage"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tables that tests have made, each with `record_property("table", ...)`."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for table in (value for name, value in report.user_properties if name == "table"):
            terminalreporter.section(report.nodeid)
            terminalreporter.write_line(str(table))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresSandbox]:
    """A server for all tests of a process."""
    with PostgresSandbox() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresSandbox) -> str:
    """A database with all tables and nothing in them, to be copied."""

    async def filled(url: str) -> None:
        database = Database(url)
        await migrate(database)
        await database.aclose()

    with asyncio.Runner() as runner:
        runner.run(filled(driven(postgres_server.create("template"))))
    return "template"


@pytest.fixture
def postgres(postgres_server: PostgresSandbox, postgres_template: str) -> str:
    """The URL of a database of its own, with all tables."""
    return driven(postgres_server.create(f"test_{uuid.uuid4().hex}", template=postgres_template))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB; who may make none does without the test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be made by root alone")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def driven(url: str) -> str:
    """The URL as SQLAlchemy has it."""
    return url.replace("postgresql://", "postgresql+asyncpg://")
