"""Process runner for a Procfile, with Heroku's rules.

Heroku: devcenter.heroku.com/articles/procfile and devcenter.heroku.com/articles/dyno-shutdown-behavior.
"""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp

#: Heroku: seconds from SIGTERM to SIGKILL, and seconds in which a web process must open its port.
KILL_TIMEOUT_SECONDS, BOOT_TIMEOUT_SECONDS = 30.0, 60.0

#: Seconds between two health checks of a starting process.
POLL_SECONDS = 0.05

_SETTING_PREFIXES = (
    "SLACK_",
    "DISCORD_",
    "OPENAI_",
    "ANTHROPIC_",
    "GOOGLE_",
    "GEMINI_",
    "MODEL",
    "DATABASE_",
    "AGENT",
    "TOOLS",
    "DYNO",
    "LANGUAGE",
    "REPLY_",
    "REPLY_WITHOUT_MENTION",
    "LOG_",
    "METRICS",
    "OTEL_",
    "PORT",
    "SECRET_KEY",
    "LEASE_",
    "STOP_",
    "TURN",
)


def create_clean_environment() -> dict[str, str]:
    """Return a copy of this process's environment without the bot's settings.

    The settings are recognized by prefixes such as `SLACK_`, `MODEL` and `DATABASE_`. `PORT` is "0", for any free port.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SETTING_PREFIXES)}
    return {**environment, "PORT": "0"}  # several programs run on one machine


class Dyno:
    """Process of a Procfile, in a process group of its own.

    Attributes:
        name: the type and number, such as `worker.1`.
        port: the value of `PORT` in its environment.
        exit_code: None while the process runs; negative if a signal ended it.
    """

    def __init__(self, name: str, port: int, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.port = port
        self._process = process

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait_until_ready(self, path: str, *, timeout_seconds: float = BOOT_TIMEOUT_SECONDS) -> None:
        """Wait until `GET path` on the process's port responds with 200.

        Raises:
            TimeoutError: it does not within `timeout_seconds`. An exit of the process does not end the wait.
        """
        async with asyncio.timeout(timeout_seconds):
            while (await self.probe(path))[0] != 200:  # noqa: ASYNC110 - a process sends no event
                await asyncio.sleep(POLL_SECONDS)

    async def probe(self, path: str) -> tuple[int, str]:
        """Return the status and the body of `GET path`; (0, "") if the request fails."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def wait_for_exit(self, *, timeout_seconds: float = BOOT_TIMEOUT_SECONDS) -> int:
        """Wait for the process to exit, and return its exit code.

        Raises:
            TimeoutError: the process still runs after `timeout_seconds`; it is not stopped.
        """
        return await asyncio.wait_for(self._process.wait(), timeout_seconds)

    async def terminate(self) -> int:
        """Send SIGTERM to the process group, and wait for the process to exit.

        If it still runs after `KILL_TIMEOUT_SECONDS`, SIGKILL is sent. A process that has exited gets no signal.

        Returns:
            The exit code; negative if a signal ended the process.
        """
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            return await self.wait_for_exit(timeout_seconds=KILL_TIMEOUT_SECONDS)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """Send SIGKILL to the process group, and return the exit code of the process.

        It is -9, or the former exit code if the process had exited already.
        """
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return await self._process.wait()


class Foreman:
    """Starter of the processes of a Procfile, as Heroku starts them.

    It never stops a process: the caller does, by `Dyno.terminate` or `Dyno.kill`.

    Attributes:
        log: the file with the output of all processes.
    """

    def __init__(self, procfile: Path, folder: Path, settings: Mapping[str, str], *, path: Path) -> None:
        """Read the Procfile.

        Args:
            procfile: the path of the file.
            folder: the working directory of the processes, also for `log`.
            settings: environment variables in addition to those of `create_clean_environment`; `DYNO` and `PORT` are
                added, as on Heroku.
            path: the folder that comes first in `PATH`.
        """
        self.log = folder / "dynos.log"
        self._commands = dict(line.split(": ", 1) for line in procfile.read_text().splitlines())
        self._folder = folder
        self._environment = {**create_clean_environment(), "PATH": f"{path}:{os.environ['PATH']}", **settings}

    async def start(self, kind: str, number: int = 1) -> Dyno:
        """Start a process of a type of the Procfile, such as `worker`, on a free port.

        The process may not be ready on return: see `Dyno.wait_until_ready`.

        Args:
            number: the number in the dyno's name, such as 1 in `worker.1`.

        Raises:
            KeyError: the Procfile has no such type.
        """
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
    """Return the number of a TCP port that is free on this machine, also while a process restarts.

    Linux: it gives ports from 32768 on to outgoing connections (`ip_local_port_range`), and these are not returned.
    """
    while True:
        port = secrets.choice(range(20_000, 32_768))
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
