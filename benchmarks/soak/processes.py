"""Processes of the bot in the soak and load tests."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from tests.processes.procfile import create_clean_environment


def bot_command(speed: float) -> list[str]:
    """Return the command line that runs the bot with faster rate limiters.

    The caller appends the bot's command, such as `run`.

    Args:
        speed: how many times faster the rate limiters run: see `RateLimiters`.
    """
    return [sys.executable, "-m", "benchmarks.soak.bot", f"{speed:g}"]


def write_python_wrapper(folder: Path, speed: float) -> None:
    """Write an executable `python` that runs `-m bot` with faster rate limiters.

    It rejects all other arguments with exit status 2.

    Args:
        folder: the existing folder of the executable.
        speed: see `bot_command`.
    """
    python = folder / "python"
    bot = " ".join(map(quote, bot_command(speed)))
    python.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m bot" ] || exit 2\nshift 2\nexec {bot} "$@"\n')
    python.chmod(0o755)


class SoakBotProcess:
    """Process of the bot that can be started repeatedly.

    Attributes:
        log: the file with the output of all its processes.
        unexpected_exits: the number of exits other than by SIGKILL; `start` counts the exit before it.
    """

    def __init__(self, name: str, folder: Path, speed: float, settings: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.unexpected_exits = 0
        self._folder = folder
        self._speed = speed
        self._environment = {**create_clean_environment(), **settings}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start `run` in a new process, after killing a former process that still runs.

        Does not wait until the bot is ready. If the former process exited other than by SIGKILL, `unexpected_exits`
        grows by one.
        """
        if self._process is not None:
            self.unexpected_exits += self._process.returncode not in (None, -signal.SIGKILL)
            await self.aclose()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *bot_command(self._speed),
                "run",
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def aclose(self) -> None:
        """Kill the process, if it runs, and wait for its exit; the bot gets no shutdown."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
