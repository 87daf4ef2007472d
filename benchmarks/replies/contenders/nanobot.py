"""nanobot's Discord channel as a contender, in a process of its own.

`uv run --with` installs `PACKAGES` in an environment of its own. nanobot uses the simulator as Discord and this
process as its model API. Its pauses follow the wall clock, so it is measured at speed 1 only.
"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from benchmarks.replies.contenders.base import RunningContender
from benchmarks.replies.load import Load, TokenStream
from benchmarks.replies.platforms import DiscordCellPlatform, MeasuredPrompt

NAME = "nanobot-ai 0.3.5"
PACKAGES = ("nanobot-ai==0.3.5", "discord.py==2.7.1")

#: Program that installs nanobot: uv on the path, or the one that `make` installs.
UV = shutil.which("uv") or ".uv/bin/uv"

#: Limit of nanobot's start including the first installation, in seconds.
_START_TIMEOUT_SECONDS = 300.0

#: Seconds without a call after the model's last word until a reply counts as ended.
_QUIET_SECONDS = 20.0

#: Script that starts nanobot in a simulator; discord.py has no setting for Discord's address.
PROGRAM = """
import os, runpy, sys
import discord, yarl
discord.http.Route.BASE = sys.argv[1]
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(sys.argv[2])
os.environ["HOME"] = sys.argv[3]
sys.argv = ["nanobot", *sys.argv[4:]]
runpy.run_module("nanobot", run_name="__main__")
"""


class TokenStreamServer:
    """HTTP server with OpenAI's chat API that sends token streams to nanobot.

    A request gets the stream of the newest prompt in its messages, one word per chunk. It waits for a stream that is
    not stored yet. A stream has one subscriber: a second request for it takes over, and the first one gets no further
    words.

    Attributes:
        url: the base URL for OpenAI's client; "" before `start`.
    """

    def __init__(self) -> None:
        self._streams: dict[int, TokenStream] = {}
        self._stream_added = asyncio.Condition()
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        self.url = ""

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def add_stream(self, stream: TokenStream) -> None:
        """Store a stream, so that a waiting or later request for its prompt streams it."""
        async with self._stream_added:
            self._streams[stream.number] = stream
            self._stream_added.notify_all()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        user_messages = json.dumps([message for message in body["messages"] if message["role"] == "user"])
        number = int(re.findall(r"prompt (\d+)", user_messages)[-1])
        async with self._stream_added:
            await self._stream_added.wait_for(lambda: number in self._streams)
        words = asyncio.Queue[str]()
        stream = self._streams[number]
        stream.subscribe(words.put_nowait)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in stream.tokens:
            await response.write(_encode_chunk({"content": await words.get()}, None))
        await response.write(_encode_chunk({}, "stop"))
        await response.write(b"data: [DONE]\n\n")
        return response


class _NanobotContender(RunningContender):
    """Running nanobot that answers from a `TokenStreamServer`."""

    def __init__(self, platform: DiscordCellPlatform, model: TokenStreamServer) -> None:
        self._platform = platform
        self._model = model

    async def answer(self, prompt: MeasuredPrompt, stream: TokenStream) -> None:
        await self._model.add_stream(stream)
        await stream.ended.wait()
        before = -1
        while before != (before := await self._count_calls_after_pause()):
            pass

    async def _count_calls_after_pause(self) -> int:
        await asyncio.sleep(_QUIET_SECONDS)
        return len(self._platform.list_calls())


@asynccontextmanager
async def start_on_discord(platform: DiscordCellPlatform) -> AsyncIterator[RunningContender]:
    """Start nanobot's process in a Discord simulator; yield it once it is connected.

    The end of the context ends the process.

    Raises:
        TimeoutError: nanobot was not connected within `_START_TIMEOUT_SECONDS`.
    """
    model, simulator = TokenStreamServer(), platform.simulator
    await model.start()
    with TemporaryDirectory() as home:
        file = Path(home) / "config.json"
        file.write_text(json.dumps(build_config(home, model.url, simulator.bot_token)))
        packages = [word for package in PACKAGES for word in ("--with", package)]
        command = [UV, "run", "--no-project", "--python", "3.11", *packages, "python", "-c", PROGRAM]
        with (Path(home) / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                simulator.api_url,
                simulator.gateway_url,
                home,
                "gateway",
                "--config",
                str(file),
                stdout=log,
                stderr=log,
            )
            try:
                await platform.run(
                    simulator.wait_for(lambda: simulator.commands, timeout=_START_TIMEOUT_SECONDS)
                )  # the last step of its start
                yield _NanobotContender(platform, model)
            finally:
                process.terminate()
                await process.wait()
                await model.stop()
                if os.environ.get("BENCH_LOG"):
                    print((Path(home) / "log").read_text())


def is_measurable(load: Load) -> bool:
    """Return whether the load has speed 1 and at most one reply per channel.

    nanobot adds a later prompt in a channel to the running answer, and its pauses do not follow the load's speed.
    """
    return load.speed == 1 and load.replies <= load.channels


def build_config(home: str, model: str, token: str) -> dict[str, Any]:
    """Return nanobot's `config.json` as a dict.

    Args:
        home: the folder in which nanobot has its folder `workspace`.
        model: the base URL of the model API.
        token: the Discord bot token.
    """
    return {
        "agents": {"defaults": {"workspace": f"{home}/workspace", "model": "scripted", "provider": "custom"}},
        "providers": {"custom": {"apiKey": "none", "apiBase": model}},
        "channels": {"discord": {"enabled": True, "token": token, "allowFrom": ["*"]}, "websocket": {"enabled": False}},
    }


def _encode_chunk(delta: dict[str, str], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()
