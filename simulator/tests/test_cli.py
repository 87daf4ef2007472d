"""Command `chatrig serve` as a process."""

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.clients.client_script import find_node

COMMAND = [sys.executable, "-c", "import sys; from chatrig.cli import main; sys.exit(main())"]
SERVERS = ("port", "slack-port", "discord-port", "openai-port", "anthropic-port", "gemini-port")


@asynccontextmanager
async def start_serve(*options: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(*COMMAND, "serve", *options, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_json(process: Process) -> Any:
    assert process.stdout is not None
    return json.loads(await process.stdout.readline())


async def run_serve(*options: str) -> tuple[int | None, str, str]:
    """Return the exit code, the output and the errors of a command that ends at once."""
    async with start_serve(*options) as process:
        output, errors = await process.communicate()
        return process.returncode, output.decode(), errors.decode()


def find_free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


async def test_a_node_script_tests_a_bot_with_the_printed_variables() -> None:
    node = find_node(needs_packages=False)
    async with start_serve("--json") as process:
        printed = await read_json(process)
        control = {"CHATRIG_URL": printed["control"]["url"], "CHATRIG_TOKEN": printed["control"]["token"]}
        script = await asyncio.create_subprocess_exec(
            node, Path(__file__).parent / "control/control.mjs", env={**printed["env"], **control}, stderr=PIPE
        )
        _, errors = await script.communicate()
    assert (script.returncode, errors.decode()) == (0, "")


async def test_the_printed_lines_are_a_shell_script() -> None:
    async with start_serve() as process:
        assert process.stdout is not None
        lines = [await process.stdout.readline()]
        while not lines[-1].startswith(b"export CHATRIG_TOKEN="):
            lines.append(await process.stdout.readline())
        script = b"".join(lines).decode() + 'echo "$SLACK_API_URL $DISCORD_TOKEN $OPENAI_BASE_URL $CHATRIG_TOKEN"'
        shell = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=PIPE)
        output, _ = await shell.communicate()
    variables = dict(shlex.split(line.decode())[1].split("=", 1) for line in lines)
    names = ("SLACK_API_URL", "DISCORD_TOKEN", "OPENAI_BASE_URL", "CHATRIG_TOKEN")
    assert output.decode().split() == [variables[name] for name in names]
    assert {"SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", "DISCORD_BOT_TOKEN", "DISCORD_API_URL"} < variables.keys()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_all_servers(number: signal.Signals) -> None:
    ports = find_free_ports(len(SERVERS))
    options = [f"--{name}={port}" for name, port in zip(SERVERS, ports, strict=True)]
    async with start_serve("--json", *options) as process:
        printed = await read_json(process)
        assert printed["control"]["url"] == f"http://127.0.0.1:{ports[0]}"
        assert [port for port in ports[1:] if f":{port}" not in str(printed["env"])] == []
        token = {"Authorization": f"Bearer {printed['control']['token']}"}
        async with (
            aiohttp.ClientSession(printed["control"]["url"], headers=token) as session,
            session.get("/env") as response,
        ):
            assert await response.json() == printed["env"]
        os.kill(process.pid, number)
        output, errors = await process.communicate()
        assert (process.returncode, output, errors) == (0, b"", b"")
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_port_in_use_ends_in_one_line(server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, output, errors = await run_serve(f"--{server}", str(port))
    assert (code, output) == (1, "")
    assert errors == f"chatrig: --{server} {port}: the port is in use or not allowed\n"


@pytest.mark.parametrize("port", ["-1", "70000", "http", "8e3"])
async def test_a_number_that_is_no_port_is_refused(port: str) -> None:
    code, output, errors = await run_serve(f"--slack-port={port}")
    assert (code, output) == (2, "")
    assert (
        errors.splitlines()[-1]
        == f"chatrig serve: error: argument --slack-port: '{port}' is not a port from 0 to 65535"
    )


async def test_the_page_is_served_beside_the_control_api() -> None:
    async with start_serve("--json", "--page") as process, aiohttp.ClientSession() as session:
        printed = await read_json(process)
        async with session.get(printed["page"]) as response:
            assert (response.status, "<title>chatrig" in await response.text()) == (200, True)


async def test_the_page_without_its_packages_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "markdown_it.py").write_text("raise ImportError('not installed')")
    command = [*COMMAND, "serve", "--page"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=env)
    _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (1, "chatrig: --page needs the extra `ui`: install chatrig[ui]\n")
