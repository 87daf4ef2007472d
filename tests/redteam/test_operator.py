"""Attacks on the machine, the terminal and the log of the operator who runs the bot."""

import asyncio
import io
import logging
import os
import pty
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.slack.client.http_mode import EVENTS_PATH
from chatrig.client.discord import DiscordPlatform
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.models import CallTool
from chatrig.slack import SlackSimulator
from chatrig.terminal.app import TerminalApp
from chatrig.terminal.lines import run_lines
from chatrig.terminal.replies import QuietTime
from core.tools.builtin.page_text import MAX_MEMORY_BYTES
from core.tools.builtin.read_page import MAX_BYTES, MAX_CONVERSIONS, PageReader
from core.tools.builtin.read_page import read_page as read_public_page
from core.tools.tool import Tool, to_adk_tool
from tests.channels.platforms import run_conversation, wait_for_answer
from tests.channels.slack.conftest import run_bot
from tests.channels.turns.test_reply_end import wait_for_turns
from tests.channels.wiring import echo
from tests.processes.procfile import create_clean_environment

#: Sequences that set the clipboard and title, clear the screen and turn text round, with their parts that act.
ATTACK = "\x1b]52;c;cm0=\x07 \x1b[2J \x1b]0;pwned\x07 \x9b2J \u202eyned\u2069"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: Codes of the terminal styles that the program itself prints.
STYLES = re.compile(r"\x1b\[[\d;]*m")


# Memory


def create_reader() -> Tool:
    """Return the tool `read_page` for pages of this machine."""
    reader = PageReader(lambda address: address.is_loopback)
    return Tool("read_page", "Reads a page.", reader, read_public_page.parameters)


@pytest.fixture
async def page_url() -> AsyncIterator[str]:
    async def serve(request: web.Request) -> web.Response:
        piece = {"links": b"<a href=x>", "code": b"<pre>\n"}[request.match_info["name"]]
        return web.Response(body=piece * (MAX_BYTES // len(piece)), content_type="text/html")

    app = web.Application()
    app.router.add_get("/{name}", serve)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("/")).rstrip("/")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which each start of a process appends the number of running processes."""
    counts, running = list[int](), list[asyncio.subprocess.Process]()
    create = asyncio.create_subprocess_exec

    async def create_and_count(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*command, **options)
        running.append(process)
        counts.append(sum(each.returncode is None for each in running))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_and_count)
    return counts


async def test_pages_that_are_read_at_once_are_converted_two_at_a_time(
    slack: SlackSimulator, tmp_path: Path, page_url: str, children: list[int]
) -> None:
    pytest.importorskip("html_to_markdown")
    calls = [CallTool("read_page", {"url": f"{page_url}/links"}, id=f"c{number}") for number in range(8)]
    tools = {"tools": [to_adk_tool(create_reader())]}
    async with run_conversation(slack, tmp_path, calls, "Read.", core=tools) as chat:
        await chat.say("read these eight pages")
        await wait_for_answer(chat, "Read.")
        results = [message for message in chat.bot.model.requests[1]["messages"] if message["role"] == "tool"]
    assert len(results) == 8
    assert all('"text"' in result["content"] and '"cut": true' in result["content"] for result in results)
    assert max(children) <= MAX_CONVERSIONS


async def test_a_page_that_needs_more_memory_than_the_limit_is_an_error(
    slack: SlackSimulator, tmp_path: Path, page_url: str
) -> None:
    pytest.importorskip("html_to_markdown")
    call = CallTool("read_page", {"url": f"{page_url}/code"}, id="c1")  # 1,284 MB without a limit
    tools = {"tools": [to_adk_tool(create_reader())]}
    async with run_conversation(slack, tmp_path, call, "Sorry.", core=tools) as chat:
        await chat.say("read this page")
        await wait_for_answer(chat, "Sorry.")
        (result,) = [message for message in chat.bot.model.requests[1]["messages"] if message["role"] == "tool"]
    assert "cannot be converted" in result["content"]
    assert 2 * MAX_MEMORY_BYTES <= 256 * 2**20


# Terminal


async def start_command(arguments: Sequence[str], folder: Path, output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", *arguments),
        cwd=folder,
        env={**create_clean_environment(), "DATABASE_URL": f"sqlite:///{folder / 'parley.db'}", "TERM": "xterm"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


async def run_in_terminal(arguments: Sequence[str], folder: Path) -> str:
    """Run `python -m bot` on a terminal, and return what the terminal gets, without styles."""
    main, terminal = pty.openpty()
    process = await start_command(arguments, folder, terminal)
    os.close(terminal)

    def read() -> bytes:
        data = b""
        with suppress(OSError), os.fdopen(main, "rb", buffering=0) as reader:  # Linux: an error is the end
            while piece := reader.read(65_536):
                data += piece
        return data

    output = await asyncio.to_thread(read)
    await process.wait()
    return STYLES.sub("", output.decode().replace("\r\n", "\n"))


async def store_attack(server: DiscordSimulator, folder: Path) -> str:
    """Have a user with a name of control sequences write some, and return the session's id."""
    server.people["mal"] = server._guild.add_user("mal", f"mal{ATTACK}")
    async with run_conversation(server, folder, f"answer {ATTACK}") as chat:
        await chat.say(f"question {ATTACK}", user="mal")
        (turn,) = await wait_for_turns(chat)
        return str(turn.session)


async def test_no_command_lets_users_control_the_operators_terminal(server: DiscordSimulator, tmp_path: Path) -> None:
    session = await store_attack(server, tmp_path)
    commands = (("export", session), ("export", session, "--json"), ("forget", "--user", "mal"), ("turns",))
    outputs = await asyncio.gather(*(run_in_terminal(command, tmp_path) for command in commands))
    for command, output in zip(commands, outputs, strict=True):
        assert "Traceback" not in output
        assert CONTROLS.findall(output) == [], command
        assert command == ("turns",) or "\\u001b]52;c;cm0=\\u0007" in output, command


async def test_an_export_into_a_file_has_the_text_as_users_wrote_it(server: DiscordSimulator, tmp_path: Path) -> None:
    session = await store_attack(server, tmp_path)
    process = await start_command(("export", session), tmp_path, asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert f"question {ATTACK}" in output.decode()


async def test_the_lines_of_the_simulator_control_no_terminal(
    slack: SlackSimulator, server: DiscordSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(_platform: Any, _seconds: float) -> bool:
        return True  # there is no bot

    async def write() -> AsyncIterator[str]:
        for line in ("/channel general\n", f"one {ATTACK}\n", "/discord\n", "/channel general\n", f"two {ATTACK}\n"):
            yield line

    for platform in (SlackPlatform, DiscordPlatform):
        monkeypatch.setattr(platform, "wait_until_connected", connect)
    out = io.StringIO()
    quick = QuietTime(quiet_seconds=0.1, max_quiet_seconds=0.2, stalled_reply_seconds=1, max_wait_seconds=2)
    await run_lines([SlackPlatform(slack), DiscordPlatform(server)], write(), out, quiet_time=quick)
    assert "one \\u001b]52;c;cm0=\\u0007" in out.getvalue()
    assert "two \\u001b]52;c;cm0=\\u0007" in out.getvalue()
    assert CONTROLS.findall(out.getvalue()) == []


async def test_the_screen_of_the_simulator_shows_no_control_characters(
    slack: SlackSimulator, server: DiscordSimulator
) -> None:
    slack.add_user(f"mal{ATTACK}")
    for simulator in (slack, server):
        await simulator.post_message("ada", "general", f"hello {ATTACK}")
    app = TerminalApp(SlackPlatform(slack), DiscordPlatform(server), notices=[f"notice {ATTACK}"])
    async with app.run_test(size=(120, 40)) as pilot:
        for session in app.sessions.all:
            app.sessions.switch_to(session)
            session.open_place(next(place for place in session.platform.channels if place.name == "#general"))
            app._show_notice("")
            await pilot.pause()
            await pilot.pause()
            screen = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
            assert "hello ]52;c;cm0=" in screen
            assert "notice ]52;c;cm0=" in screen
            assert CONTROLS.findall(screen) == []


# Log

REQUESTS = {
    "a header of 20 kB": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    "an address of 20 kB": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: 1\r\n" % n for n in range(3_000)) + b"\r\n",
    "a name with a space": b"GET / HTTP/1.1\r\nHost: x\r\nB ad: 1\r\n\r\n",
    "a value with NUL": b"GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n",
    "a wrong version": b"GET / HTTP/9.9\r\n\r\n",
    "a wrong address": b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a wrong encoding": b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab"
    % EVENTS_PATH.encode(),
    "a wrong chunk": b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" % EVENTS_PATH.encode(),
    "no HTTP": b"\x16\x03\x01\0\xa5\r\n\r\n",
}


@pytest.mark.parametrize("slack", ["http"], indirect=True)
async def test_no_request_of_a_stranger_writes_a_traceback_into_the_log(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_bot(slack, tmp_path, echo) as bot:
        caplog.clear()
        for request in REQUESTS.values():
            reader, writer = await asyncio.open_connection("127.0.0.1", int(bot.address.rpartition(":")[2]))
            writer.write(request)
            async with asyncio.timeout(30):
                assert (await reader.readline()).split()[1][:1] in (b"4", b"5")
                await reader.read()
            writer.close()
        question = await bot.mention_bot("ada", "general", "still there?")
        await bot.wait_for_texts(question, lambda texts: len(texts) == 2)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert not any(record.exc_info for record in caplog.records)
