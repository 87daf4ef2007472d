"""Temporary PostgreSQL server."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import postgres
from tests.processes.postgres import PostgresServer


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["default", "ignored"])
def quit_handler(request: pytest.FixtureRequest) -> Iterator[None]:
    """Handle SIGQUIT by default, then ignore it, as a shell's background jobs do."""
    former = signal.signal(signal.SIGQUIT, request.param)
    yield
    signal.signal(signal.SIGQUIT, former)


@pytest.mark.usefixtures("quit_handler")
def test_a_failed_start_leaves_no_folder_and_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes] | None] = []

    def is_ready(server: PostgresServer) -> bool:
        processes.append(server._server)
        return False

    monkeypatch.setattr(postgres, "START_TIMEOUT_SECONDS", -1.0)
    monkeypatch.setattr(PostgresServer, "_is_ready", is_ready)
    server = PostgresServer()
    with pytest.raises(RuntimeError), server:
        pass
    (process,) = processes
    assert process is not None
    assert process.poll() is not None
    assert not server._folder.exists()


def test_a_failed_initdb_leaves_no_folder(tmp_path: Path) -> None:
    server = PostgresServer()
    server.bin_folder = tmp_path
    with pytest.raises(OSError, match="initdb"), server:
        pass
    assert not server._folder.exists()
