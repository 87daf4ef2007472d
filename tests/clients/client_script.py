"""Client scripts in processes of their own, and tables of the capabilities that they are tested for."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

FOLDER = Path(__file__).parent
#: Bolt for JavaScript needs this version.
MIN_NODE_VERSION = 20
#: Longest time for one step of a script: the machine may have much else to do.
STEP_SECONDS = 20.0

Line = dict[str, Any]
T = TypeVar("T")


class ClientScript:
    """A running script, which prints one JSON object for each step: `{"step": ..., ...}`."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._unread: list[Line] = []
        self._changed = asyncio.Event()
        self._has_ended = False

    async def read_output(self) -> None:
        """Collect the printed lines until the script ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                self._unread.append(json.loads(line))
            except ValueError:
                self._unread.append({"step": "invalid", "error": line.decode()})
            self._changed.set()
        self._has_ended = True
        self._changed.set()

    async def read_step(self, step: str) -> Line:
        """Return the next line of a step; fail if it has an error, or does not come."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                line = await self._wait_for_line(step)
        except TimeoutError:
            pytest.fail(f"{step}: no line within {STEP_SECONDS:.0f} s; {self._describe()}")
        if "error" in line:
            pytest.fail(f"{step}: {line['error']}; {self._describe()}")
        return line

    async def _wait_for_line(self, step: str) -> Line:
        while True:
            for line in self._unread:
                if line["step"] == step:
                    self._unread.remove(line)
                    return line
            if self._has_ended:
                pytest.fail(f"{step}: the script has ended; {self._describe()}")
            self._changed.clear()
            await self._changed.wait()

    def _describe(self) -> str:
        return f"unread lines: {self._unread}\n{self._log.read_text()[-3000:]}"


class CapabilityTable(Generic[T]):
    """Rows of capabilities, each a check with a readable name."""

    def __init__(self) -> None:
        self._rows: dict[str, Callable[[T], Awaitable[None]]] = {}

    def row(self, name: str) -> Callable[[Callable[[T], Awaitable[None]]], Callable[[T], Awaitable[None]]]:
        """Add the decorated check as a row."""

        def add(check: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
            assert name not in self._rows
            self._rows[name] = check
            return check

        return add

    async def check(self, subtests: pytest.Subtests, conversation: T) -> None:
        """Check all rows in their order; each is a subtest."""
        for name, check in self._rows.items():
            with subtests.test(name):
                await check(conversation)


@asynccontextmanager
async def run_script(command: list[str], environment: Mapping[str, str], log: Path) -> AsyncIterator[ClientScript]:
    """Run a script in the folder of this module; its errors go to `log`."""
    with log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=FOLDER, env={**os.environ, **environment}, stdout=PIPE, stderr=errors, limit=2**20
        )
        script = ClientScript(process, log)
        reader = asyncio.create_task(script.read_output())
        try:
            yield script
        finally:
            if process.returncode is None:
                process.kill()
            await asyncio.gather(process.wait(), reader)


def find_node() -> str:
    """Return the path of node with the installed packages; without them, skip the test, but fail in CI."""
    node = shutil.which("node")
    if node is None:
        return _skip_outside_ci(f"there is no node: install Node.js {MIN_NODE_VERSION}")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < MIN_NODE_VERSION:
        return _skip_outside_ci(f"node is {version}: install Node.js {MIN_NODE_VERSION}")
    if not (FOLDER / "node_modules").is_dir():
        return _skip_outside_ci("the packages are not installed: npm ci --prefix tests/clients")
    return node


def find_command(script: str) -> list[str]:
    """Return the command of a script by its name."""
    return [find_node() if script.endswith(".mjs") else sys.executable, script]


def _skip_outside_ci(reason: str) -> str:
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)
