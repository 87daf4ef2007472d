"""A foreman: runs what a Procfile says, as Heroku does.

Heroku: devcenter.heroku.com/articles/procfile and devcenter.heroku.com/articles/dyno-shutdown-behavior.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from sandbox.environment import clean_environment

#: Heroku: what is told to end is killed after so many seconds, and what is to be called listens after as many at most.
KILL_TIMEOUT_SECONDS, BOOT_TIMEOUT_SECONDS = 30.0, 60.0

#: Seconds between two questions to a process that is being started.
POLL_SECONDS = 0.05


class Dyno:
    """One process: its command by a shell, in a group of its own that is told to end with SIGTERM, and killed 30
    seconds later.

    Attributes:
        name: `worker.1`.
        port: the one that it was told to listen at.
        code: its exit code, once it has ended.
    """

    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.port = port
        self._process = process

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait_until_ready(self, path: str, *, timeout_seconds: float = BOOT_TIMEOUT_SECONDS) -> None:
        """Wait until it answers at `path` with 200.

        Raises:
            TimeoutError: it does not.
        """
        async with asyncio.timeout(timeout_seconds):
            while (await self.probe(path))[0] != 200:  # noqa: ASYNC110 - a process is asked, and tells nobody
                await asyncio.sleep(POLL_SECONDS)

    async def probe(self, path: str) -> tuple[int, str]:
        """What it answers at `path`, with which status; 0 if nobody listens."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def wait_for_exit(self, *, timeout_seconds: float = BOOT_TIMEOUT_SECONDS) -> int:
        """The exit code of what ends by itself.

        Raises:
            TimeoutError: it does not.
        """
        return await asyncio.wait_for(self._process.wait(), timeout_seconds)

    async def terminate(self) -> int:
        """The exit code; negative, if it had to be killed."""
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            return await self.wait_for_exit(timeout_seconds=KILL_TIMEOUT_SECONDS)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """The exit code, negative unless it had ended."""
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return await self._process.wait()


class Foreman:
    """Starts the processes of a Procfile.

    Attributes:
        log: what all of them write.
    """

    def __init__(self, procfile: Path, folder: Path, settings: Mapping[str, str], *, path: Path) -> None:
        """Args:
        folder: where the processes are run, and the log is.
        settings: what they have of the environment; `DYNO` and `PORT` are added, as on Heroku.
        path: where commands are looked for first.
        """
        self.log = folder / "dynos.log"
        self._commands = dict(line.split(": ", 1) for line in procfile.read_text().splitlines())
        self._folder = folder
        self._environment = {**clean_environment(), "PATH": f"{path}:{os.environ['PATH']}", **settings}

    async def start(self, kind: str, number: int = 1) -> Dyno:
        """Start a process of that kind."""
        name, port = f"{kind}.{number}", find_free_port()
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_shell(
                f"exec {self._commands[kind]}",
                cwd=self._folder,
                env={**self._environment, "DYNO": name, "PORT": str(port)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return Dyno(name, port, process)


def find_free_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
