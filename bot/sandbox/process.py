"""The bot as a process of its own, which the sandbox starts, has killed, and starts again."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from core.concurrency.tasks import run_in_background
from core.models.vendors import can_call_tools

log = logging.getLogger(__name__)

#: The variable of its environment that has the address of the page that it tells of itself.
FEED = "PARLEY_FEED"

State = Literal["starting", "running", "ended"]

#: Seconds that the bot has to end its replies, and after which it is started again when it was killed.
STOP_TIMEOUT, AGAIN = 30.0, 1.0

#: Lines of the log that are shown when the bot has ended by itself.
LAST_LINES = 12

#: Begin of an entry of the log, as text or as JSON. Lines after the last entry say why the bot has ended.
_ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\{")


class BotProcess:
    """`python -m bot run` with these settings, for as long as it is entered.

    What ends it but this here is kept as `told`; it is then started again by `restart` alone.

    Attributes:
        state: `running` once it has said that it is ready.
        told: why it has ended by itself.
        log_tail: the end of its log, then.
        model: the one that it asks; `models` may be chosen in its place.
        agent: the folder of the agent that is watched, if there is one.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log_file: Path,
        ready: Callable[[], Awaitable[object]],
        *,
        model: str,
        models: Sequence[str],
        agent: str = "",
    ) -> None:
        """Args:
        ready: waits until it hears what is said.
        """
        self.state: State = "starting"
        self.told = self.log_tail = ""
        self.model = model
        self.models = list(models)
        self.agent = agent
        self.ended = asyncio.Event()
        self._environment = environment
        self._log = log_file
        self._ready = ready
        self._process: asyncio.subprocess.Process | None = None
        self._again = asyncio.Event()
        self._tick = asyncio.Event()
        self._is_meant = False

    @property
    def notices(self) -> list[str]:
        """Lines on top of the page about the model."""
        if can_call_tools(self.model):
            return []
        return [f"{self.model} is tiny and often wrong. It cannot call tools: choose another model to see the agent's."]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._log.write_bytes(b"")
        try:
            async with run_in_background(self._keep(), name="bot"):
                yield
        finally:
            await self._stop()

    async def kill(self) -> None:
        """Kill it, as an accident would. It is started again."""
        if self._process is not None and self._process.returncode is None:
            self._is_meant = True
            self._process.kill()

    async def restart(self, model: str = "") -> None:
        """Let it end in good order, and start it again, perhaps with another model."""
        self.model = model or self.model
        self._is_meant = True
        self._again.set()
        await self._stop()

    async def ticked(self) -> None:
        """Wait until something of this changes."""
        await self._tick.wait()

    async def _keep(self) -> None:
        while True:
            self._is_meant = False
            self._again.clear()
            self._become("starting")
            with self._log.open("ab") as output:
                begins = output.tell()
                self._process = process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "bot",
                    "run",
                    env={**os.environ, **self._environment, "MODEL": self.model},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for who speaks; the bot is told by us
                )
            async with run_in_background(self._await_ready(), name="bot: ready"):
                await process.wait()
            if self._is_meant:
                if process.returncode == -signal.SIGKILL:
                    self._become("starting", "It was killed, and is being started again.")
                    await asyncio.sleep(AGAIN)
                continue
            lines = self._lines(begins)
            self._become("ended", _reason(lines) or f"It ended with code {process.returncode}.", lines)
            self.ended.set()
            log.error("the bot ended by itself, with code %s: %s", process.returncode, self.told)
            await self._again.wait()

    async def _await_ready(self) -> None:
        with suppress(TimeoutError):  # it may take as long as it likes: who waits sees that it starts
            await self._ready()
            self._become("running")

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _become(self, state: State, told: str = "", lines: Sequence[str] = ()) -> None:
        self.state, self.told, self.log_tail = state, told, "\n".join(lines[-LAST_LINES:])
        self._tick.set()
        self._tick = asyncio.Event()

    def _lines(self, begins: int) -> list[str]:
        with self._log.open("rb") as file:
            file.seek(begins)
            return file.read().decode(errors="replace").splitlines()


def _reason(lines: Sequence[str]) -> str:
    """Return what a process that ended said after the last entry of its log; of a stack trace, the last line."""
    entries = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
    said = [line for line in lines[entries[-1] + 1 if entries else 0 :] if line.strip()]
    is_trace = any(line.startswith("Traceback ") for line in said)
    return "\n".join(said[-1:] if is_trace else said)
