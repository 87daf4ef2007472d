"""Server that imports the bot once, and then forks it in some milliseconds.

On each connection to its request socket it forks a supervisor, which forks the requested process. The supervisor
reports the exit code, and kills the process if the connection closes. A connection to the warm-up socket makes the
server import the bot's modules and run the bot once. Messages are JSON lines.
"""

import asyncio
import gc
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from select import select
from typing import Any

import httpcore2

from tests.processes.procfile import create_clean_environment

#: Limit of the warm-up, in seconds.
WARM_UP_TIMEOUT_SECONDS = 120.0

#: File names of the server's sockets.
REQUEST_SOCKET, WARM_UP_SOCKET = "requests", "warm-up"

#: Script that replaces `python` and requests a process.
FORK_CLIENT = Path(__file__).with_name("fork_client.py")

#: Modules that the bot imports lazily.
LAZY_MODULES = (
    "aiosqlite",
    "anyio._backends._asyncio",
    "channels.discord.adapter",
    "channels.slack.adapter",
    "asyncpg",
    "google.adk.tools.google_search_tool",
    "google.adk.tools.vertex_ai_search_tool",
    "h11",
    "httpcore2",
    "openai.resources.chat.completions.completions",
    "slack_bolt.listener_matcher.async_builtins",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "tiktoken",
    "tiktoken_ext.openai_public",
    "truststore",
)


class ForkedProcess:
    """Process that a fork server has forked."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for the exit; return the exit code, or the negated signal number."""
        code = int(await self._reader.readline())
        self._writer.close()
        return code

    async def aclose(self) -> None:
        """Kill the process if it is alive; `wait` still returns its exit code."""
        if not self._writer.is_closing():
            self._writer.write_eof()


class ForkServer:
    """Client of a fork server.

    Args:
        folder: folder of the server's sockets, from `start_fork_server`.

    Attributes:
        python: replacement for `python` that forks `-m MODULE`, and is Python for everything else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "python"

    def warm_up(self, *databases: str) -> None:
        """Make the server import the bot's modules and run the bot once, unless it has.

        Call it before the first fork.

        Args:
            databases: URLs of migrated PostgreSQL databases for further runs; the first one uses SQLite.

        Raises:
            RuntimeError: the server does not answer in time.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / WARM_UP_SOCKET))
            connection.sendall(json.dumps(databases).encode() + b"\n")
            if not (select([connection], [], [], WARM_UP_TIMEOUT_SECONDS)[0] and connection.recv(1)):
                raise RuntimeError("the fork server did not warm up in time")

    async def start_process(self, **request: Any) -> ForkedProcess:
        """Fork a process that calls `run_process` with these arguments, and return it."""
        reader, writer = await asyncio.open_unix_connection(str(self.folder / REQUEST_SOCKET))
        writer.write(json.dumps(request).encode() + b"\n")
        return ForkedProcess(int(await reader.readline()), reader, writer)


@contextmanager
def start_fork_server(module: str) -> Iterator[ForkServer]:
    """Start a fork server and yield its client; end the server with the context.

    The first user must call `warm_up`.

    Args:
        module: module whose function `run_process` the forked process calls. The server imports it before the bot's
            modules.
    """
    with tempfile.TemporaryDirectory(prefix="parley-fork-") as name, ExitStack() as stack:
        fork_server = ForkServer(Path(name))
        python, client_arguments = (
            shlex.quote(sys.executable),
            shlex.join(["-IS", str(FORK_CLIENT), str(fork_server.folder / REQUEST_SOCKET)]),
        )
        fork_server.python.write_text(
            f'#!/bin/sh\n[ "$1" = -m ] || exec {python} "$@"\nexec {python} {client_arguments} "$@"\n'
        )
        fork_server.python.chmod(0o755)
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for listener, file_name in zip(listeners, (REQUEST_SOCKET, WARM_UP_SOCKET), strict=True):
            listener.bind(str(fork_server.folder / file_name))
            listener.listen()
        files = [listener.fileno() for listener in listeners]
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, files), str(fork_server.python), module],
            pass_fds=files,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=create_clean_environment(),
        )
        stack.close()
        try:
            yield fork_server
        finally:
            process.kill()
            process.communicate()


def _import_bot(module: str) -> Callable[..., None]:
    """Import the bot's modules, and return the `run_process` function of `module`."""
    run_process: Callable[..., None] = import_module(module).run_process
    # after the import hooks of the module
    from core.agents.runtime import warm_up  # noqa: PLC0415

    for module in LAZY_MODULES:
        import_module(module)
    from tests.processes import shared_setup  # noqa: PLC0415

    shared_setup.share_one_time_work()
    httpcore2.default_ssl_context(_trust_env=True)  # fills the cache for the HTTP clients
    asyncio.run(warm_up())
    return run_process


def _run_bot_once(database: str) -> None:
    """Run the bot once on a database, so that one-time work precedes the forks.

    Args:
        database: see `warm_up.run_bot`.
    """
    from tests.processes.warm_up import run_bot  # noqa: PLC0415 - see `_import_bot`

    asyncio.run(run_bot(database))
    gc.unfreeze()
    gc.collect()  # threads of closed loops end
    for thread in threading.enumerate()[1:]:
        thread.join(30.0)
    gc.freeze()
    assert threading.active_count() == 1, "a forked process would lack a thread"


def _serve(requests: socket.socket, warm_ups: socket.socket, python: str, module: str) -> None:
    """Handle connections to both sockets until standard input closes.

    In a forked process it returns early.

    Args:
        requests: the socket for new processes.
        warm_ups: the socket for `warm_up`.
        python: the path that replaces `sys.executable`.
        module: see `start_fork_server`.
    """
    run_process: Callable[..., None] | None = None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so the kernel reaps the supervisors
    while True:
        readable = select([requests, warm_ups, sys.stdin], [], [])[0]
        if warm_ups in readable:
            connection, _ = warm_ups.accept()
            with connection:
                databases = json.loads(connection.makefile().readline())
                if run_process is None:
                    run_process, databases = _import_bot(module), ["", *databases]
                for database in databases:
                    _run_bot_once(database)
                sys.executable = python  # processes that the program starts are forked, too
                connection.sendall(b"\n")
        elif requests in readable:
            connection, _ = requests.accept()
            assert run_process is not None, "the server is not warmed up"
            if os.fork() == 0:
                requests.close()
                warm_ups.close()
                _run_supervisor(connection, run_process)
                return
            connection.close()
        else:
            return


def _run_supervisor(connection: socket.socket, run_process: Callable[..., None]) -> None:
    """Fork the requested process, and send its exit code through the connection.

    Kills the process if the connection closes. Returns only in the forked process, after `run_process`.
    """
    wakeup_reader, wakeup_writer = socket.socketpair()
    wakeup_writer.setblocking(False)
    stream = connection.makefile("rw")
    request = json.loads(stream.readline())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # wakes the selector
    signal.set_wakeup_fd(wakeup_writer.fileno())
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file in (stream, connection, wakeup_reader, wakeup_writer):
            file.close()
        run_process(**request)
        return
    with suppress(BrokenPipeError):
        stream.write(f"{pid}\n")
        stream.flush()
        if connection in select([connection, wakeup_reader], [], [])[0]:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        stream.write(f"{os.waitstatus_to_exitcode(status)}\n")
        stream.flush()
    os._exit(0)


if __name__ == "__main__":
    request_socket, warm_up_socket = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    _serve(request_socket, warm_up_socket, *sys.argv[3:])
