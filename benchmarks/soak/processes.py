"""The processes of the bot in a soak."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from sandbox.environment import clean_environment


def bot_at(speed: float) -> list[str]:
    """What is `python -m bot` where the platforms' time passes so many times as fast; its command comes behind."""
    return [sys.executable, "-m", "benchmarks.soak.bot", f"{speed:g}"]


def stand_in(folder: Path, speed: float) -> None:
    """Put a `python` into `folder` that is asked for `-m bot`, and is that one."""
    python = folder / "python"
    bot = " ".join(map(quote, bot_at(speed)))
    python.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m bot" ] || exit 2\nshift 2\nexec {bot} "$@"\n')
    python.chmod(0o755)


class Bot:
    """One process.

    Attributes:
        log: what it and its predecessors wrote.
        deaths: how often it ended without being killed.
    """

    def __init__(self, name: str, folder: Path, speed: float, settings: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.deaths = 0
        self._folder = folder
        self._speed = speed
        self._environment = {**clean_environment(), **settings}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, whatever has become of the one before."""
        if self._process is not None:
            self.deaths += self._process.returncode not in (None, -signal.SIGKILL)
            await self.aclose()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *bot_at(self._speed),
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
        """Kill it: there is no last word."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
