"""The processes of the bot in a soak."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

#: Settings of whoever runs the soak, which must not reach the bot.
FOREIGN = ("SLACK_", "DISCORD_", "OPENAI_", "MODEL", "DATABASE_URL", "AGENT_", "TOOLS", "DYNO", "LOG_", "PORT", "OTEL_")


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
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self._environment = {**inherited, "PORT": "0", **settings}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, whatever has become of the one before."""
        if self._process is not None:
            self.deaths += self._process.returncode not in (None, -signal.SIGKILL)
            await self.aclose()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.soak.bot",
                str(self._speed),
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
