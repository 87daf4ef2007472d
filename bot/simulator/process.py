"""Process of the simulator's bot, which can be killed and restarted."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.concurrency.tasks import run_in_background
from core.errors import ParleyError
from core.models.vendors import can_call_tools
from core.observability.secret_redaction import redact_secrets

log = logging.getLogger(__name__)

#: Environment variable with the WebSocket address of the page's inspector.
INSPECTOR_VARIABLE = "PARLEY_INSPECTOR"

ProcessState = Literal["starting", "running", "ended"]

#: Seconds until a bot that does not stop is killed, and until a killed bot restarts.
STOP_TIMEOUT_SECONDS, RESTART_DELAY_SECONDS = 30.0, 1.0

#: Seconds to wait for the bot after a switch to or from the tour.
SWITCH_TIMEOUT_SECONDS = 60.0

#: Lines of the log that are shown when the bot exits.
LOG_TAIL_LINES = 12

#: Start of a log entry, as text or JSON. Lines after the last entry have the reason of an exit.
_LOG_ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\{")


@dataclass(frozen=True, slots=True)
class AgentModels:
    """Models of the bot's agents, as the bot reports them once its agents are loaded.

    Attributes:
        uses_default: whether the model that a user selects in the simulator answers for an agent.
        replaced: the full names of the agents' models without an API key, for which that model answers.
    """

    names: Sequence[str]
    uses_default: bool
    replaced: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """All environment variables and the working folder of a process of the bot.

    The folder's `.env`, `agents.toml` and `mcp.toml` apply; None is the folder of this process.
    """

    environment: Mapping[str, str]
    folder: Path | None = None


class BotProcess:
    """Process of `python -m bot run` with given settings, or with those of the tour.

    After an unexpected exit, the process does not run until `restart` or another method that restarts it is called.

    Attributes:
        state: `starting`, `running` once the bot is connected, or `ended`.
        exit_reason: reason of an unexpected exit, or of a restart after a kill; empty once a new process starts.
        log_tail: last lines of the bot's log after an unexpected exit.
        models: full names of the models that the user can choose.
        agent: folder of the watched agent, or a file in it; empty if none is watched.
        ended: event that is set at an unexpected exit; a restart does not clear it.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log_file: Path,
        ready: Callable[[], Awaitable[object]],
        *,
        tour: LaunchSettings,
        find_agent_models: Callable[[], AgentModels | None],
        is_tour: bool = False,
        model: str,
        models: Sequence[str],
        agent: str = "",
    ) -> None:
        """Configure the process; `run` starts it.

        Args:
            environment: variables in addition to those of this process; `tour` replaces all during the tour.
            ready: waits until the bot is connected.
            find_agent_models: returns the models that the bot has reported; None before.
        """
        self.is_tour = is_tour
        self.state: ProcessState = "starting"
        self.exit_reason = self.log_tail = ""
        self.model = model
        self.models = list(models)
        self.agent = agent
        self.ended = asyncio.Event()
        self._environment = environment
        self._tour = tour
        self._find_agent_models = find_agent_models
        self._log = log_file
        self._ready = ready
        self._process: asyncio.subprocess.Process | None = None
        self._restart_requested = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_exit_expected = False

    @property
    def lacks_key(self) -> bool:
        """True if a tiny local model answers, or a model without an API key is replaced."""
        if self.is_tour:
            return not can_call_tools(self.model)
        models = self.agent_models
        return models is not None and (bool(models.replaced) or not all(map(can_call_tools, models.names)))

    @property
    def agent_models(self) -> AgentModels | None:
        """The models that answer; None until the bot has loaded its agents."""
        return self._find_agent_models()

    @property
    def notices(self) -> list[str]:
        """Lines about the bot's model, for the top of the page and of the terminal."""
        if self.is_tour:
            other = self._tour.environment["MODEL"]
            hint = f" All else is answered by {other}, a tiny local model, often wrong."
            return [f"The tour's steps are scripted.{'' if can_call_tools(other) else hint}"]
        models = self.agent_models
        if models is None:
            return []
        tiny = next((name for name in models.names if not can_call_tools(name)), "")
        if models.replaced:
            replaced = ", ".join(models.replaced)
            verb = "has" if len(models.replaced) == 1 else "have"
            answering = f"{tiny} (tiny, often wrong)" if tiny else self.model
            return [f"{replaced} {verb} no API key: {answering} answers instead."]
        return [f"{tiny} is a tiny local model, often wrong: paste a key."] if tiny else []

    def describe_models(self) -> list[str]:
        """Return the `notices`, or else the models that answer; empty until the agents are loaded."""
        names = self.agent_models.names if self.agent_models else ()
        return self.notices or ([f"Model: {', '.join(names)}"] if names else [])

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the process while the block runs, and stop it at the end.

        The log file is emptied first. The block begins before the process has started, and continues if the process
        exits by itself: see `ended`.
        """
        self._log.write_bytes(b"")
        try:
            async with run_in_background(self._run(), name="bot"):
                yield
        finally:
            await self._stop()

    async def kill(self) -> None:
        """Kill the process without waiting for its end; it restarts after `RESTART_DELAY_SECONDS`."""
        if self._process is not None and self._process.returncode is None:
            self._is_exit_expected = True
            self._process.kill()

    async def restart(self, model: str = "") -> None:
        """Stop the process gracefully; it starts again without delay, perhaps with another model.

        It returns when the old process has ended. A process that does not end within `STOP_TIMEOUT_SECONDS` is killed,
        and restarts after `RESTART_DELAY_SECONDS`.
        """
        self.model = model or self.model
        self._is_exit_expected = True
        self._restart_requested.set()
        await self._stop()

    async def start_tour(self) -> None:
        """Restart with the tour's agent; wait until the bot is connected or has exited.

        The wait ends after `SWITCH_TIMEOUT_SECONDS` at the latest.
        """
        await self._switch(is_tour=True)

    async def end_tour(self) -> None:
        """Restart with the user's agent, and wait as `start_tour` does."""
        await self._switch(is_tour=False)

    async def save_key(self, key: str, vendor: str = "") -> None:
        """Try an API key, store it in `.env`, end the tour, and restart with a model of its vendor.

        It waits as `start_tour` does. For `vendor` see `bot.simulator.model_keys.save_key`.

        Raises:
            ValueError: the key was not stored; the message explains the reason to the user.
        """
        from bot.simulator.model_keys import save_key  # noqa: PLC0415 - a bot without a simulator does without

        try:
            saved = await save_key(key, vendor)
        except ParleyError as error:
            raise ValueError(redact_secrets(str(error))) from None
        self._environment = {**self._environment, **saved.settings}  # ahead of variables of the shell
        self.model = saved.model
        self.models = saved.models
        self.is_tour = False
        await self._restart_and_wait()

    async def _switch(self, *, is_tour: bool) -> None:
        if self.is_tour is not is_tour:
            self.is_tour = is_tour
            await self._restart_and_wait()

    async def _restart_and_wait(self) -> None:
        self._set_state("starting")
        await self.restart()
        with suppress(TimeoutError):  # the state is still `starting`
            async with asyncio.timeout(SWITCH_TIMEOUT_SECONDS):
                while self.state == "starting":
                    await self.wait_for_change()

    async def wait_for_change(self) -> None:
        """Wait until `state` is set again, possibly to the same value."""
        await self._changed.wait()

    async def _run(self) -> None:
        while True:
            self._is_exit_expected = False
            self._restart_requested.clear()
            self._set_state("starting")
            own = LaunchSettings({**os.environ, **self._environment, "MODEL": self.model})
            launch = self._tour if self.is_tour else own
            with self._log.open("ab") as output:
                begins = output.tell()
                self._process = process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "bot",
                    "run",
                    env=launch.environment,
                    cwd=launch.folder,
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
        self.state = state
        self.exit_reason = exit_reason
        self.log_tail = "\n".join(lines[-LOG_TAIL_LINES:])
        self._changed.set()
        self._changed = asyncio.Event()

    def _read_log(self, begins: int) -> list[str]:
        with self._log.open("rb") as file:
            file.seek(begins)
            return file.read().decode(errors="replace").splitlines()


def _extract_reason(lines: Sequence[str]) -> str:
    """Return the lines after the last log entry; of a traceback, only its last line."""
    entries = [number for number, line in enumerate(lines) if _LOG_ENTRY.match(line)]
    last = [line for line in lines[entries[-1] + 1 if entries else 0 :] if line.strip()]
    is_trace = any(line.startswith("Traceback ") for line in last)
    return "\n".join(last[-1:] if is_trace else last)
