"""Processes of the bot in a soak."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from sandbox.procfile import clean_environment


def bot_command(speed: float) -> list[str]:
    """Return the arguments of the bot without a command such as `run`, with faster rate limiters."""
    return [sys.executable, "-m", "benchmarks.soak.bot", f"{speed:g}"]


def write_python_wrapper(folder: Path, speed: float) -> None:
    """Write an executable `python` into `folder` that runs `-m bot` with faster rate limiters."""
    python = folder / "python"
    bot = " ".join(map(quote, bot_command(speed)))
    python.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m bot" ] || exit 2\nshift 2\nexec {bot} "$@"\n')
    python.chmod(0o755)


class SoakBotProcess:
    """Process of the bot that can be started repeatedly.

    Attributes:
        log: the output of all its processes.
        unexpected_exits: the number of exits without a kill.
    """

    def __init__(self, name: str, folder: Path, speed: float, settings: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.unexpected_exits = 0
        self._folder = folder
        self._speed = speed
        self._environment = {**clean_environment(), **settings}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start a process; a former one that still runs is killed."""
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
        """Kill the process without a shutdown."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
