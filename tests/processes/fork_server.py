"""A process that has all imports behind it, and that the program is forked from in some milliseconds.

On each connection to one of its sockets it forks a keeper, and that the process which the connection asks for. The
keeper tells how the process ended; if the connection is closed before, it kills it. On a connection to its other socket
it gets warm. What goes over the lines is JSON, a line each.
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

from sandbox.environment import inherited

#: Seconds that the imports may take.
WARM_TIMEOUT = 120.0

#: The sockets in its folder: where processes are asked for, and where it is asked to be warm.
ORDERS, WARMTH = "orders", "warmth"

#: What asks for a process in the place of `python`.
FORKED = Path(__file__).with_name("fork_client.py")

#: What the program imports only when it is at work, after the process was forked.
LATE = (
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


class Life:
    """A process that lives."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def end(self) -> int:
        """Wait for it to end: its exit code, or the signal that killed it, negative."""
        code = int(await self._reader.readline())
        self._writer.close()
        return code

    async def aclose(self) -> None:
        """Kill it, if it lives still: how it ended can still be asked."""
        if not self._writer.is_closing():
            self._writer.write_eof()


class Zygote:
    """The process, wherever it was begun.

    Args:
        folder: what `begun` has given to it.

    Attributes:
        python: what is asked for `-m MODULE`, as `python` is, and has that forked; asked for all else, it is Python.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "python"

    def warm(self, *databases: str) -> None:
        """Have the imports made and the program rehearsed, if nobody has yet: before anything is forked.

        Args:
            databases: those of PostgreSQL that the program is rehearsed on, with all tables, beside one of SQLite.

        Raises:
            RuntimeError: it is not warm in time.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / WARMTH))
            connection.sendall(json.dumps(databases).encode() + b"\n")
            if not (select([connection], [], [], WARM_TIMEOUT)[0] and connection.recv(1)):
                raise RuntimeError("the zygote is not warm")

    async def live(self, **order: Any) -> Life:
        """Start a process, and let it `live` with this."""
        reader, writer = await asyncio.open_unix_connection(str(self.folder / ORDERS))
        writer.write(json.dumps(order).encode() + b"\n")
        return Life(int(await reader.readline()), reader, writer)


@contextmanager
def begun(mould: str) -> Iterator[Zygote]:
    """A zygote of one's own, to be warmed by whoever first wants it.

    Args:
        mould: the module whose function `live` is what is forked; it is imported before the program is.
    """
    with tempfile.TemporaryDirectory(prefix="parley-zygote-") as name, ExitStack() as stack:
        zygote = Zygote(Path(name))
        own, words = shlex.quote(sys.executable), shlex.join(["-IS", str(FORKED), str(zygote.folder / ORDERS)])
        zygote.python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {own} "$@"\nexec {own} {words} "$@"\n')
        zygote.python.chmod(0o755)
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for listener, at in zip(listeners, (ORDERS, WARMTH), strict=True):
            listener.bind(str(zygote.folder / at))
            listener.listen()
        files = [listener.fileno() for listener in listeners]
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, files), str(zygote.python), mould],
            pass_fds=files,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=inherited(),
        )
        stack.close()
        try:
            yield zygote
        finally:
            process.kill()
            process.communicate()


def _import(mould: str) -> Callable[..., None]:
    """Import what the program would import; what is forked."""
    live: Callable[..., None] = import_module(mould).live
    # behind what the mould does to imports, as all of these
    from core.agents.runtime import warm_up  # noqa: PLC0415

    for module in LATE:
        import_module(module)
    from tests.processes import shared_setup as once  # noqa: PLC0415

    once.share()
    httpcore2.default_ssl_context(_trust_env=True)  # as a client does
    asyncio.run(warm_up())
    return live


def _rehearse(database: str) -> None:
    """Run what the program would run once."""
    from tests.processes.preload import rehearse  # noqa: PLC0415 - see `_import`

    asyncio.run(rehearse(database))
    gc.unfreeze()
    gc.collect()  # of loops that are gone, the threads end
    for thread in threading.enumerate()[1:]:
        thread.join(30.0)
    gc.freeze()
    assert threading.active_count() == 1, "a thread would not be there in what is forked"


def _serve(orders: socket.socket, warmth: socket.socket, python: str, mould: str) -> None:
    """Answer connections until the standard input is closed."""
    live: Callable[..., None] | None = None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        found = select([orders, warmth, sys.stdin], [], [])[0]
        if warmth in found:
            connection, _ = warmth.accept()
            with connection:
                databases = json.loads(connection.makefile().readline())
                if live is None:
                    live, databases = _import(mould), ["", *databases]
                for database in databases:
                    _rehearse(database)
                sys.executable = python  # what a program starts itself is forked, too
                connection.sendall(b"\n")
        elif orders in found:
            connection, _ = orders.accept()
            assert live is not None, "nobody has warmed it"
            if os.fork() == 0:
                orders.close()
                warmth.close()
                _keep(connection, live)
                return
            connection.close()
        else:
            return


def _keep(connection: socket.socket, live: Callable[..., None]) -> None:
    """Fork a process, and tell of its end. Returns in that process alone, when it has lived."""
    bell, rope = socket.socketpair()
    rope.setblocking(False)
    line = connection.makefile("rw")
    order = json.loads(line.readline())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # so that the bell rings
    signal.set_wakeup_fd(rope.fileno())
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (line, connection, bell, rope):
            end.close()
        live(**order)
        return
    with suppress(BrokenPipeError):
        line.write(f"{pid}\n")
        line.flush()
        if connection in select([connection, bell], [], [])[0]:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        line.write(f"{os.waitstatus_to_exitcode(status)}\n")
        line.flush()
    os._exit(0)


if __name__ == "__main__":
    asked, asked_warm = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    _serve(asked, asked_warm, *sys.argv[3:])
