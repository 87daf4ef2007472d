"""Tools of MCP servers, called on real servers. The tests need the extra `mcp`."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from core.agents.config import AgentConfig
from core.agents.factory import create_app
from core.errors import SettingsError
from core.models.provider import Done, ProviderEvent, ToolCall, ToolResult
from core.tools.mcp import McpServer, load_servers
from tests.fixtures.conversation import Conversation, Converse, ScriptedProvider, adapter

SERVER = """
import os, sys, time
from mcp.server.mcpserver import MCPServer
server = MCPServer("tries")

@server.tool()
def add(a: int, b: int) -> int:
    "Adds."
    return a + b

@server.tool()
def whoami() -> str:
    "Says what it was given."
    return f"{os.environ.get('TOKEN')} {os.getpid()}"

@server.tool()
def hang() -> str:
    "Hangs."
    time.sleep(600)

@server.tool()
def die() -> str:
    "Dies."
    os._exit(1)

@server.tool()
def fail() -> str:
    "Fails."
    raise ValueError("not today")

server.run(**({"transport": "streamable-http", "port": int(sys.argv[1])} if sys.argv[1:] else {}))
"""

Load = Callable[[str], list[McpServer]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str) -> list[McpServer]:
        (tmp_path / "mcp.toml").write_text(text)
        return load_servers(tmp_path / "mcp.toml", {"A_TOKEN": "xyz-token"})

    return load_text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[x", "it is not TOML"),
        ("[x]\n", "[x] it must have either a command or a url"),
        ("[x]\ncommand='a'\nurl='b'", "[x] it must have either a command or a url"),
        ("[x]\ncommand='a'\nseconds=0", "[x.seconds] it must be more than 0 (it is 0)"),
        ("[x]\ncommand='a'\nwords=1", "[x.words] there is no such key: write one of command, args"),
        ("x=1", "[x] it must be a table"),
        ("[x]\ncommand='a'\nauth='oauth'", "[x] a command is one process for all people: write a url"),
        ("[x]\ncommand='a'\nperson_headers={K='Key'}", "[x] a command is one process for all people: write a url"),
        ("[x]\nurl='u'\nauth='basic'", "[x.auth] it must be 'oauth'"),
        ("[x]\nurl='u'\nauth='oauth'\nperson_headers={K='Key'}", "[x] it must have either auth or person_headers"),
        ("[x]\nurl='u'\nscopes=['a']", '[x] scopes need auth = "oauth"'),
        ("[x]\nurl='u'\nperson_headers={A='a', B='b'}", "[x.person_headers] it must have one header"),
        (
            "[x]\nurl='u'\nperson_headers={'A:'='a'}",
            "[x.person_headers] it must be a header and the name of the service",
        ),
        ("[x]\nurl='u'\nperson_headers={A=' '}", "[x.person_headers] it must be a header and the name of the service"),
        ("[x]\ncommand='a'\nenv={K='${NO_SUCH_WORD}'}", "[x.env] names the variable NO_SUCH_WORD, which is not set"),
    ],
)
def test_each_fault_of_the_file_is_described_with_its_table(load: Load, text: str, fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(text)
    assert "MCP_FILE=" in str(raised.value)
    assert fault in str(raised.value)


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot be read \(No such file"):
        load_servers(tmp_path / "none.toml")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    pytest.importorskip("mcp")
    (tmp_path / "tries.py").write_text(SERVER)
    return tmp_path / "tries.py"


async def start_conversation(converse: Converse, server: McpServer, provider: ScriptedProvider) -> Conversation:
    return await converse(app=create_app(AgentConfig(), model=adapter(provider), tools=[server]))


def list_results(provider: ScriptedProvider, request: int = -1) -> list[str]:
    parts = provider.requests[request].messages[-1].parts
    return [str(part.result) for part in parts if isinstance(part, ToolResult)]


def stdio_config(script: Path, options: str = "") -> str:
    return f"[tries]\ncommand = '{sys.executable}'\nargs = ['{script}']\nenv = {{ TOKEN = '${{A_TOKEN}}' }}\n{options}"


async def test_filtered_tools_are_called_with_the_servers_environment(
    converse: Converse, load: Load, script: Path
) -> None:
    [server] = load(stdio_config(script, "tools = ['add', 'whoami', 'fail']"))
    provider = ScriptedProvider(
        [
            ToolCall("c1", "tries_add", {"a": 1, "b": 2}),
            ToolCall("c2", "tries_whoami", {}),
            ToolCall("c3", "tries_fail", {}),
            Done(),
        ],
        "3.",
    )
    conversation = await start_conversation(converse, server, provider)
    assert await conversation.reply("Add.") == "3."
    assert [spec.name for spec in provider.requests[0].tools] == ["tries_add", "tries_fail", "tries_whoami"]
    added, given, failed = list_results(provider)
    assert "3" in added
    assert "[redacted]" in given  # the server's secret does not reach the model
    assert "Error executing tool fail" in failed


@pytest.mark.parametrize("end", ["dies", "hangs", "is killed"])
async def test_a_failed_server_ends_no_turn_and_restarts(
    converse: Converse, load: Load, script: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    [server] = load(stdio_config(script, "seconds = 60"))
    whoami, add = ToolCall("c0", "tries_whoami", {}), ToolCall("c2", "tries_add", {"a": 1, "b": 2})
    fatal: list[ProviderEvent] = [
        ToolCall("c1", f"tries_{ {'dies': 'die', 'hangs': 'hang'}.get(end, 'hang') }", {}),
        Done(),
    ]
    provider = ScriptedProvider([whoami, Done()], "Here.", fatal, "It failed.", [add, Done()], "3.")
    conversation = await start_conversation(converse, server, provider)
    assert await conversation.reply("Who?") == "Here."
    pid = int(next(re.finditer(r"\[redacted\] (\d+)", list_results(provider)[0]))[1])
    if end == "is killed":
        asyncio.get_running_loop().call_later(0.5, os.kill, pid, signal.SIGKILL)
    patient = server.config
    if end == "hangs":
        server.config = patient.model_copy(update={"seconds": 5.0})
    assert await conversation.reply("Do it.") == "It failed."
    server.config = patient
    assert "failed" in list_results(provider)[0]
    assert await conversation.reply("Add.") == "3."
    assert "3" in list_results(provider)[0]


async def test_a_server_that_does_not_start_is_logged_and_reported_to_the_model(
    converse: Converse, load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "tries.py"
    pytest.importorskip("mcp")
    [config] = load(stdio_config(script, "seconds = 60"))
    server = McpServer("tries", config.config, retry_pause=0)
    provider = ScriptedProvider("I have no tools.", "I have.")
    conversation = await start_conversation(converse, server, provider)
    with caplog.at_level(logging.INFO, "core.tools.mcp"):
        assert await conversation.reply("Hi") == "I have no tools."
        script.write_text(SERVER)
        assert await conversation.reply("And now?") == "I have."
    first, second = provider.requests
    assert first.tools == []
    assert "The tools of `tries` are unavailable" in first.messages[0].text
    assert "unavailable" not in second.messages[0].text
    assert "tries_add" in [spec.name for spec in second.tools]
    messages = [message for name, _, message in caplog.record_tuples if name == "core.tools.mcp"]
    assert messages[0].startswith("the MCP server tries does not answer")
    assert messages[-1] == "the MCP server tries is available again"


@pytest.fixture
async def server_url(script: Path) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), "0", stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async with asyncio.timeout(100):
        while (found := re.search(rb"running on (http://[\d.:]+)", line := await process.stderr.readline())) is None:
            assert line, "it has ended"
    yield f"{found[1].decode()}/mcp"
    process.kill()
    await process.wait()


async def test_a_remote_server_is_called_over_http(converse: Converse, load: Load, server_url: str) -> None:
    [server] = load(
        f"[tries]\nurl = '{server_url}'\nheaders = {{ Authorization = 'Bearer ${{A_TOKEN}}' }}\nprefix = ''"
    )
    provider = ScriptedProvider([ToolCall("c1", "add", {"a": 1, "b": 2}), Done()], "3.")
    conversation = await start_conversation(converse, server, provider)
    assert await conversation.reply("Add.") == "3."
    assert "3" in list_results(provider)[0]
