"""Client scripts in processes of their own, and tables of the tested capabilities."""

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
#: Minimum major version of Node.js for Bolt for JavaScript.
MIN_NODE_VERSION = 20
#: Limit of one step of a script, long enough for an overloaded machine.
STEP_TIMEOUT_SECONDS = 20.0

Line = dict[str, Any]
T = TypeVar("T")


class ClientScript:
    """Running script that prints one JSON object for each step: `{"step": ..., ...}`."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._unread: list[Line] = []
        self._changed = asyncio.Event()
        self._has_ended = False

    async def read_output(self) -> None:
        """Store the printed lines until the script ends, and wake the waiting readers."""
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
        """Wait for the next line of a step, and return it as a dict.

        The test fails if the line has an error, or does not come within `STEP_TIMEOUT_SECONDS`.
        """
        try:
            async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
                line = await self._wait_for_line(step)
        except TimeoutError:
            pytest.fail(f"{step}: no line within {STEP_TIMEOUT_SECONDS:.0f} s; {self._describe()}")
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
    """Table of capabilities of a client: named checks, each a subtest."""

    def __init__(self) -> None:
        self._rows: dict[str, Callable[[T], Awaitable[None]]] = {}

    def row(self, name: str) -> Callable[[Callable[[T], Awaitable[None]]], Callable[[T], Awaitable[None]]]:
        """Return a decorator that adds a check to the table under this name."""

        def add(check: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
            assert name not in self._rows
            self._rows[name] = check
            return check

        return add

    async def check(self, subtests: pytest.Subtests, conversation: T) -> None:
        """Run all checks in the order of the table; each is a subtest."""
        for name, check in self._rows.items():
            with subtests.test(name):
                await check(conversation)


@asynccontextmanager
async def run_script(command: list[str], environment: Mapping[str, str], log: Path) -> AsyncIterator[ClientScript]:
    """Run a script in the folder of this module, and yield it; kill it at the end.

    Args:
        environment: additional environment variables.
        log: the file for the script's standard error.
    """
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


def find_node(*, needs_packages: bool = True) -> str:
    """Return the path of Node.js.

    Without Node.js or the installed packages, the test is skipped; in CI it fails.

    Args:
        needs_packages: whether the script imports packages.
    """
    node = shutil.which("node")
    if node is None:
        return _skip_outside_ci(f"Node.js is not installed: install Node.js {MIN_NODE_VERSION}")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < MIN_NODE_VERSION:
        return _skip_outside_ci(f"Node.js is {version}: install Node.js {MIN_NODE_VERSION}")
    if needs_packages and not (FOLDER / "node_modules").is_dir():
        return _skip_outside_ci("the packages are not installed: npm ci --prefix simulator/tests/clients")
    return node


def find_command(script: str) -> list[str]:
    """Return the command that runs a script: by Node.js for `.mjs`, else by Python."""
    return [find_node() if script.endswith(".mjs") else sys.executable, script]


def _skip_outside_ci(reason: str) -> str:
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)
