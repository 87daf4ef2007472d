"""What all tests stand on: how long they look for what nobody thought of, and a PostgreSQL of their own.

`make test ARGS="--hypothesis-profile thorough"` looks longer; with `--outage 60`, a database that goes away is away for
a minute.
"""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement

from channels import words
from core import prices
from core.store.statement import Prepared, Statement
from sandbox.postgres import PostgresSandbox
from tests import tables, trust
from tests.zygote import Zygote

#: How often Python's collector looks through what there is, if it is not told otherwise.
THRESHOLDS = gc.get_threshold()

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outage", type=float, default=6.0, help="seconds for which a database that goes away is away")


@pytest.fixture(scope="session")
def outage(pytestconfig: pytest.Config) -> float:
    """Seconds for which a database that goes away is away: longer than it takes to notice."""
    return float(pytestconfig.getoption("outage"))


def pytest_xdist_auto_num_workers() -> int:
    """How many run tests at once: more than there are cores, since tests wait half of their time."""
    return (os.cpu_count() or 1) * 3 // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker is left alone with it in the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What is imported by now stays, and Python's collector looks through it no more: that took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tables that tests have made, each with `record_property("table", ...)`."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for table in (value for name, value in report.user_properties if name == "table"):
            terminalreporter.section(report.nodeid)
            terminalreporter.write_line(str(table))


@pytest.fixture(scope="session", autouse=True)
def _once_for_all() -> Iterator[None]:
    """What each process does once is done once for all tests: certificates and prices are read, statements compiled,
    and whoever registers commands asks what is spoken.
    """
    prepared, known = Statement.prepared, dict[tuple[Statement, str], Prepared]()
    compiled = ClauseElement._compile_w_cache
    caches = dict[str, tuple[Dialect, dict[Any, Any]]]()

    def once(self: Statement, dialect: Dialect) -> Prepared:
        key = (self, dialect.name)
        if key not in known:
            known[key] = prepared(self, dialect)
        return known[key]

    def once_by_all(self: ClauseElement, dialect: Dialect, **how: Any) -> Any:
        """Engines keep to themselves what they have compiled, and each test has one."""
        dialect, how["compiled_cache"] = caches.setdefault(dialect.name, (dialect, {}))
        return compiled(self, dialect, **how)

    read, read_once = prices._read, cache(prices._read)
    with pytest.MonkeyPatch.context() as patch:
        trust.share(patch.setattr)
        patch.setattr(prices, "_read", lambda file: (read_once if file == prices._OURS else read)(file))
        patch.setattr(words, "spoken", cache(words.spoken))
        patch.setattr(Statement, "prepared", once)
        patch.setattr(ClauseElement, "_compile_w_cache", once_by_all)
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


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """What programs are forked from, each without its imports: they take seconds of work."""
    with Zygote("tests.mould") as process:
        yield process


@pytest.fixture
def python(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands where `python` would, and where `sys.executable` does: what it is asked for is forked."""
    stands = zygote.stand_in(tmp_path_factory.mktemp("python"))
    monkeypatch.setattr(sys, "executable", str(stands))
    return stands


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
