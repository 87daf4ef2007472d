"""Unmodified bots in processes of their own, whose clients call the simulators."""

import asyncio
import os
import shlex
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

from chatrig.observable import ObservableSimulator

#: Folder with the modules that Python and Node load before the bot's own code.
_REDIRECT = Path(__file__).with_name("redirect")

#: Variables of the caller's environment that a bot gets: the others may have real tokens.
_INHERITED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "NODE_PATH", "SSL_CERT_FILE"),
)

_CONNECT_SECONDS = 30.0
_STOP_SECONDS = 10.0
_MAX_OUTPUT_CHARACTERS = 64_000


class BotError(RuntimeError):
    """A bot that cannot be started, exits too early, or does not connect."""


class Bot:
    """Process of an unmodified bot, as an async context manager.

    The process has the variables `env` of the simulators and servers, the given ones, and of the caller's environment
    only those without which no program runs, such as PATH. In Python, slack_sdk, discord.py and hikari call the
    simulators; in Node, @slack/web-api and discord.js. Other clients need the addresses from the environment.

    Attributes:
        command: the program and its arguments; `python` is the interpreter of this process.
        output: the end of what the bot printed, standard error included.
    """

    def __init__(
        self,
        *command: str,
        platforms: Sequence[ObservableSimulator[Any, Any]] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        connect_seconds: float = _CONNECT_SECONDS,
    ) -> None:
        """Prepare a bot; the process starts when the context is entered.

        Args:
            platforms: the simulators, to each of which the bot must connect within `connect_seconds`.
            env: further variables.
            cwd: the working directory; None for that of this process.
        """
        self.command = [sys.executable if command[:1] == ("python",) else command[0], *command[1:]]
        self._platforms = platforms
        self._env = dict(env or {})
        self._cwd = Path(cwd or ".")
        self._connect_seconds = connect_seconds
        self._mark = token_hex(8)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._chunks: deque[str] = deque()

    @property
    def output(self) -> str:
        return "".join(self._chunks)

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the bot runs or before its start."""
        return None if self._process is None else self._process.returncode

    def describe(self) -> str:
        """Return the command, the exit code and the output, for a failed test."""
        return f"{self._name}: exit code {self.exit_code}, output:\n{self.output}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the process, and wait until it is connected to each simulator.

        Raises:
            BotError: the command does not exist, the bot exited, or it did not connect in time; it is stopped.
        """
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                cwd=self._cwd,
                env=self._create_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BotError(f"the bot cannot be started: {self._name}: {error.strerror}") from error
        self._reader = asyncio.create_task(self._read_output(self._process))
        exit_wait = asyncio.create_task(self._process.wait())
        connection = asyncio.gather(*(each.wait_until_connected(self._connect_seconds) for each in self._platforms))
        try:
            waits: list[asyncio.Future[Any]] = [exit_wait, connection]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if exit_wait.done() and self._platforms:
                raise BotError(
                    f"the bot exited with code {self.exit_code} before it connected{self._describe_output()}"
                )
            if connection.exception() is not None:
                raise BotError(f"the bot did not connect within {self._connect_seconds:g} s{self._describe_output()}")
        except BaseException:
            await self.stop(0)
            raise
        finally:
            for task in (exit_wait, connection):
                task.cancel()
            await asyncio.gather(exit_wait, connection, return_exceptions=True)

    async def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Send SIGTERM to the process group, and SIGKILL to what still runs after `seconds`; return after its end."""
        if self._process is None:
            return
        if seconds > 0 and self.exit_code is None:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)
        await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL to the process group, with the processes that the bot has started; return after its end."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._kill_daemons()
        await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()  # a process that left the group may hold the pipe open
            await asyncio.wait([self._reader])

    async def restart(self) -> None:
        """Stop the process, and start it again."""
        await self.stop()
        await self.start()

    @property
    def _name(self) -> str:
        return shlex.join(self.command)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _kill_daemons(self) -> None:
        """Kill the processes that the bot has started, and that have left its process group (Linux only)."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"CHATRIG_BOT={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)

    def _create_environment(self) -> dict[str, str]:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        for platform in self._platforms:
            environment |= platform.env
        environment |= self._env
        for name in ("SLACK_API_URL", "DISCORD_API_URL", "DISCORD_GATEWAY_URL"):
            if name in environment:
                environment[f"CHATRIG_{name}"] = environment[name]
        paths = [str(_REDIRECT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        environment["PYTHONUNBUFFERED"] = "1"
        environment["CHATRIG_BOT"] = self._mark
        options = [f'--require "{_REDIRECT / "redirect.cjs"}"', environment.get("NODE_OPTIONS", "")]
        environment["NODE_OPTIONS"] = " ".join(option for option in options if option)
        return environment

    async def _read_output(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        size = 0
        while chunk := await process.stdout.read(4096):
            self._chunks.append(chunk.decode(errors="replace"))
            size += len(self._chunks[-1])
            while size > _MAX_OUTPUT_CHARACTERS:
                size -= len(self._chunks.popleft())

    def _describe_output(self) -> str:
        lines = self.output.strip().splitlines()
        return f": {lines[-1]}" if lines else ", and printed nothing"
