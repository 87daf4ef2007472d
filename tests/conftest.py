"""Fixtures and options of all tests.

`--hypothesis-profile thorough` tries more examples; `--outage 60` makes database outages of a minute.
"""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from core.observability import secret_redaction
from tests.fixtures import empty_databases
from tests.processes import shared_setup
from tests.processes.fork_server import ForkServer, start_fork_server
from tests.processes.postgres import PostgresServer

# A shell that starts the tests with `&` ignores these signals, and so would each process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

gc.disable()  # until pytest has collected the tests, since imports leave little garbage

#: Folders whose tests start many processes or a browser, or run a benchmark.
LONG_FOLDERS = tuple(Path(__file__).parent / name for name in ("acceptance", "benchmarks", "chaos"))

#: Python's default thresholds of the garbage collector.
GC_THRESHOLDS = gc.get_threshold()

#: Module of the fork server without instrumentation, and the modules of all fork servers.
FORKED_MODULE = "tests.processes.fork_main"
FORKED_MODULES = (FORKED_MODULE, "tests.chaos.fork_main")

#: Folders of the fork servers that xdist workers share, by module.
FORK_SERVERS = pytest.StashKey[dict[str, str]]()

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outage", type=float, default=6.0, help="seconds of a database outage")


@pytest.fixture(scope="session")
def outage(pytestconfig: pytest.Config) -> float:
    """Return the seconds of a database outage, longer than the bot needs to notice it."""
    return float(pytestconfig.getoption("outage"))


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of test processes: three per core, since tests mostly wait."""
    return (os.cpu_count() or 1) * 3


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the modules in `LONG_FOLDERS` if none of their tests is selected."""
    return True if config.option.markexpr == "not long" and collection_path in LONG_FOLDERS else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in `LONG_FOLDERS`, before pytest selects by marks."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in LONG_FOLDERS):
            item.add_marker("long")


def pytest_collection_finish() -> None:
    """Exclude all imported objects from garbage collection, and make collections rare.

    Collections of these objects took a tenth of the time.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables that tests recorded with `record_property("table", ...)`."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for table in (value for name, value in report.user_properties if name == "table"):
            terminalreporter.section(report.nodeid)
            terminalreporter.write_line(str(table))


@pytest.fixture(scope="session", autouse=True)
def _share_setup() -> Iterator[None]:
    """Patch slow one-time work (see `shared_setup`) so that all tests share it."""
    with pytest.MonkeyPatch.context() as patch:
        shared_setup.share_one_time_work(patch.setattr)
        yield


@pytest.fixture(autouse=True)
def _forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redact the secrets of a test in this test only: they may be ordinary words."""
    monkeypatch.setattr(secret_redaction, "_known", set(secret_redaction._known))
    monkeypatch.setattr(secret_redaction, "_temporary", dict(secret_redaction._temporary))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL server that runs for all tests of a process."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """Return the URL of a PostgreSQL database with all tables.

    All tests of the process share the database, which may have rows of former tests.
    """
    url = add_driver(postgres_server.create_database("tests"))
    with asyncio.Runner() as runner:
        runner.run(empty_databases.migrate_database(url))
    return url


@pytest.fixture
def postgres(postgres_url: str) -> str:
    """Return the URL of a PostgreSQL database with all tables, without rows."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(empty_databases.empty_database(postgres_url))
    return postgres_url


def get_database_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of a new SQLite file ("sqlite"), or of an empty PostgreSQL database ("postgres")."""
    if kind == "postgres":
        return str(request.getfixturevalue("postgres"))
    return f"sqlite+aiosqlite:///{folder / 'parley.db'}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start the fork servers once, and pass their folders to each xdist process."""
    config: pytest.Config = node.config
    if FORK_SERVERS not in config.stash:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[FORK_SERVERS] = {
            module: str(stack.enter_context(start_fork_server(module)).folder) for module in FORKED_MODULES
        }
    node.workerinput["fork_servers"] = config.stash[FORK_SERVERS]


@contextmanager
def run_fork_server(config: pytest.Config, module: str) -> Iterator[ForkServer]:
    """Yield the fork server of a module, after warming it up.

    Under xdist it is the shared one, otherwise a new one.
    """
    shared = getattr(config, "workerinput", {}).get("fork_servers")
    with nullcontext(ForkServer(Path(shared[module]))) if shared else start_fork_server(module) as fork_server:
        fork_server.warm_up()
        yield fork_server


@pytest.fixture(scope="session")
def fork_server(pytestconfig: pytest.Config) -> Iterator[ForkServer]:
    """Yield a server that forks processes of the bot after all imports.

    The imports of a new process take seconds.
    """
    with run_fork_server(pytestconfig, FORKED_MODULE) as process:
        yield process


@pytest.fixture
def python(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace `sys.executable` with a client of the fork server, and return its path."""
    monkeypatch.setattr(sys, "executable", str(fork_server.python))
    return fork_server.python


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 4 MB, and yield its folder; skip the test without root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def add_driver(url: str) -> str:
    """Return a PostgreSQL URL that tells SQLAlchemy to use asyncpg."""
    return url.replace("postgresql://", "postgresql+asyncpg://")
