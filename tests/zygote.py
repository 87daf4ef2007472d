"""A process that has all imports behind it, and that the program is forked from in some milliseconds.

On each connection to its socket it forks a keeper, and that the process which the connection asks for. The keeper tells
how the process ended; if the connection is closed before, it kills it. What goes over the line is JSON, a line each.
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
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

import httpcore2

from sandbox.environment import inherited

#: Seconds that the imports may take.
WARM_TIMEOUT = 120.0

#: What asks for a process in the place of `python`.
FORKED = Path(__file__).with_name("forked.py")

#: What the program imports only when it is at work, after the process was forked.
LATE = (
    "aiosqlite",
    "anyio._backends._asyncio",
    "channels.discord.channel",
    "channels.slack.channel",
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
    """The process, to be used as a context.

    Args:
        mould: the module whose function `live` is what is forked; it is imported before the program is.
        databases: those of PostgreSQL that the program is rehearsed on, with all tables, beside one of SQLite.

    Attributes:
        python: what is asked for `-m MODULE`, as `python` is, and has that forked; asked for all else, it is Python.

    Raises:
        RuntimeError: it is not warm in time.
    """

    def __init__(self, mould: str, *databases: str) -> None:
        self._asked = [mould, *databases]
        self._folder = tempfile.TemporaryDirectory(prefix="parley-zygote-")
        self._socket = f"{self._folder.name}/socket"
        self.python = Path(self._folder.name, "python")
        own, words = shlex.quote(sys.executable), shlex.join(["-IS", str(FORKED), self._socket])
        self.python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {own} "$@"\nexec {own} {words} "$@"\n')
        self.python.chmod(0o755)

    def __enter__(self) -> Self:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._socket)
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), str(self.python), *self._asked],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=inherited(),
            )
        said = self._process.stdout
        assert said is not None
        if not (select([said], [], [], WARM_TIMEOUT)[0] and said.readline()):
            self.__exit__(None, None, None)
            raise RuntimeError("the zygote is not warm")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    async def live(self, **order: Any) -> Life:
        """Start a process, and let it `live` with this."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(json.dumps(order).encode() + b"\n")
        return Life(int(await reader.readline()), reader, writer)


def _warm(python: str, mould: str, *databases: str) -> Callable[..., None]:
    """Import what the program would import, and run what it would run once."""
    live: Callable[..., None] = import_module(mould).live
    # behind what the mould does to imports, as all of these
    from bot import answering, app, cli, keeping, logs, metrics, operator  # noqa: F401, PLC0415
    from core.models import openai  # noqa: F401, PLC0415
    from core.warming import warm_up  # noqa: PLC0415

    for module in LATE:
        import_module(module)
    from tests import once  # noqa: PLC0415
    from tests.rehearsal import rehearse  # noqa: PLC0415

    once.share()
    httpcore2.default_ssl_context(_trust_env=True)  # as a client does
    asyncio.run(warm_up())
    for database in ("", *databases):
        asyncio.run(rehearse(database))
    sys.executable = python  # what a program starts itself is forked, too
    gc.unfreeze()
    gc.collect()  # of loops that are gone, the threads end
    for thread in threading.enumerate()[1:]:
        thread.join(1.0)
    gc.freeze()
    assert threading.active_count() == 1, "a thread would not be there in what is forked"
    return live


def _serve(listener: socket.socket, live: Callable[..., None]) -> None:
    """Answer connections until the standard input is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while listener in select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _keep(connection, live)
            return
        connection.close()


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
    life = _warm(*sys.argv[2:])
    sys.stdout.write("warm\n")
    sys.stdout.flush()
    _serve(socket.socket(fileno=int(sys.argv[1])), life)
