"""Bot process of the sandbox, which can be killed and restarted."""

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

#: Environment variable with the address of the inspector's feed.
FEED_VARIABLE = "PARLEY_FEED"

ProcessState = Literal["starting", "running", "ended"]

#: Seconds that the bot gets to stop, and before a killed bot restarts.
STOP_TIMEOUT_SECONDS, RESTART_DELAY_SECONDS = 30.0, 1.0

#: Lines of the log that are shown when the bot exits.
LOG_TAIL_LINES = 12

#: Start of a log entry, as text or JSON. Lines after the last entry have the reason of an exit.
_LOG_ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\{")


class BotProcess:
    """Process of `python -m bot run` with given settings.

    After an unexpected exit only `restart` starts it again.

    Attributes:
        state: `running` once the bot is connected.
        exit_reason: reason of an unexpected exit.
        log_tail: end of its log after such an exit.
        model: its model; `models` are the alternatives.
        agent: folder or module of the watched agent, if any.
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
        """Create the process.

        Args:
            ready: waits until the bot is connected.
        """
        self.state: ProcessState = "starting"
        self.exit_reason = self.log_tail = ""
        self.model = model
        self.models = list(models)
        self.agent = agent
        self.ended = asyncio.Event()
        self._environment = environment
        self._log = log_file
        self._ready = ready
        self._process: asyncio.subprocess.Process | None = None
        self._restart_requested = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_exit_expected = False

    @property
    def notices(self) -> list[str]:
        """Lines about the model for the top of the page."""
        if can_call_tools(self.model):
            return []
        return [f"{self.model} is tiny and often wrong. It cannot call tools: choose another model to see the agent's."]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._log.write_bytes(b"")
        try:
            async with run_in_background(self._run(), name="bot"):
                yield
        finally:
            await self._stop()

    async def kill(self) -> None:
        """Kill the process; it restarts after a moment."""
        if self._process is not None and self._process.returncode is None:
            self._is_exit_expected = True
            self._process.kill()

    async def restart(self, model: str = "") -> None:
        """Stop the process gracefully and restart it, optionally with another model."""
        self.model = model or self.model
        self._is_exit_expected = True
        self._restart_requested.set()
        await self._stop()

    async def wait_for_change(self) -> None:
        """Wait until an attribute changes."""
        await self._changed.wait()

    async def _run(self) -> None:
        while True:
            self._is_exit_expected = False
            self._restart_requested.clear()
            self._set_state("starting")
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
                    start_new_session=True,  # Ctrl-C must not reach the bot: this process stops it
                )
            async with run_in_background(self._await_ready(), name="bot: ready"):
                await process.wait()
            if self._is_exit_expected:
                if process.returncode == -signal.SIGKILL:
                    self._set_state("starting", "It was killed and is restarting.")
                    await asyncio.sleep(RESTART_DELAY_SECONDS)
                continue
            lines = self._read_log(begins)
            self._set_state("ended", _extract_reason(lines) or f"It exited with code {process.returncode}.", lines)
            self.ended.set()
            log.error("the bot exited with code %s: %s", process.returncode, self.exit_reason)
            await self._restart_requested.wait()

    async def _await_ready(self) -> None:
        with suppress(TimeoutError):  # the page shows that it is starting
            await self._ready()
            self._set_state("running")

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _set_state(self, state: ProcessState, exit_reason: str = "", lines: Sequence[str] = ()) -> None:
        self.state, self.exit_reason, self.log_tail = state, exit_reason, "\n".join(lines[-LOG_TAIL_LINES:])
        self._changed.set()
        self._changed = asyncio.Event()

    def _read_log(self, begins: int) -> list[str]:
        with self._log.open("rb") as file:
            file.seek(begins)
            return file.read().decode(errors="replace").splitlines()


def _extract_reason(lines: Sequence[str]) -> str:
    """Return the lines after the last log entry; of a traceback, the last line."""
    entries = [number for number, line in enumerate(lines) if _LOG_ENTRY.match(line)]
    last = [line for line in lines[entries[-1] + 1 if entries else 0 :] if line.strip()]
    is_trace = any(line.startswith("Traceback ") for line in last)
    return "\n".join(last[-1:] if is_trace else last)
