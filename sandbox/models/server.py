"""The HTTP server under every scripted model: it listens, records, and plays a script."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from aiohttp import web

from sandbox.models.script import (
    Asked,
    Cut,
    End,
    Fail,
    Finish,
    Pause,
    Player,
    Say,
    Script,
    Stall,
    Step,
    Think,
    Turn,
    split,
)

Chunk = Mapping[str, Any]


class Wire(ABC):
    """One answer in a vendor's words."""

    @abstractmethod
    def chunks(self, step: Step) -> Iterable[Chunk]:
        """The chunks that say a step; a step with text is one piece of it."""

    @abstractmethod
    def whole(self) -> Chunk:
        """All that was said, as the one body of an answer that does not stream."""


class ScriptedServer(ABC):
    """An asynchronous context manager: it listens on a free port of this machine while it is open.

    Attributes:
        requests: the body of each request to generate, in the order in which they came.
        asked: the same requests, read.
        disconnects: how many answers the client did not hear to their end.
    """

    def __init__(self, script: Script = (), *, api_key: str | None = None, models: Sequence[str] | None = None) -> None:
        """Make a server.

        Args:
            script: the turns, or the function that gives them.
            api_key: the one key that is accepted; by default any is, and none.
            models: the names that are known; by default any is.
        """
        self.requests: list[dict[str, Any]] = []
        self.asked: list[Asked] = []
        self.disconnects = 0
        self._player = Player(script)
        self._api_key = api_key
        self._models = models
        self._changed = asyncio.Condition()
        self._closing = False
        self._origin = ""

    def then(self, *turns: Turn) -> None:
        """Add turns to the script."""
        self._player.add(*turns)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(self.routes())
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        await self._runner.cleanup()

    async def wait_for_requests(self, count: int = 1, seconds: float = 5) -> None:
        """Wait until `count` requests have come."""
        await self._wait(lambda: len(self.requests) >= count, seconds)

    async def wait_for_disconnects(self, count: int = 1, seconds: float = 5) -> None:
        """Wait until the client has hung up on `count` answers."""
        await self._wait(lambda: self.disconnects >= count, seconds)

    @abstractmethod
    def routes(self) -> list[web.RouteDef]: ...

    @abstractmethod
    def error(self, fail: Fail) -> Chunk:
        """An error's body, in the vendor's shape."""

    def refuse(self, fail: Fail) -> web.Response:
        headers = dict(fail.headers)
        if fail.retry_after is not None:
            headers.setdefault("Retry-After", f"{fail.retry_after:g}")
        text = fail.body if fail.body is not None else json.dumps(self.error(fail))
        return web.Response(status=fail.status, text=text, content_type="application/json", headers=headers)

    async def play(self, request: web.Request, asked: Asked, wire: Wire, last: bytes) -> web.StreamResponse:
        """Answer a request by the script; `last` closes a good stream."""
        async with self._changed:
            self.requests.append(dict(asked.body))
            self.asked.append(asked)
            self._changed.notify_all()
        steps = list(self._player.next(asked))
        if not any(isinstance(step, Finish | Fail | Cut | End | Stall) for step in steps):
            steps.append(Finish())
        try:
            if asked.streaming:
                return await self._stream(request, steps, wire, last)
            return await self._whole(request, steps, wire)
        except (asyncio.CancelledError, ConnectionError):
            if not self._closing:
                await asyncio.shield(self._hung_up())
            raise

    async def _stream(self, request: web.Request, steps: Sequence[Step], wire: Wire, last: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        for step in _pieces(steps):
            match step:
                case Fail() if not response.prepared:
                    return self.refuse(step)
                case Fail():
                    body = step.body if step.body is not None else json.dumps(self.error(step))
                    await response.write(b"data: " + body.encode() + b"\n\n")
                    return response
                case Pause() | Stall():
                    if not response.prepared:
                        await response.prepare(request)
                    await _wait_out(step)
                case Cut():
                    if not response.prepared:
                        await response.prepare(request)
                    _break_off(request)
                    return response
                case _:
                    if not response.prepared:
                        await response.prepare(request)
                    for chunk in wire.chunks(step):
                        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                    if isinstance(step, End):
                        return response
        await response.write(last)
        return response

    async def _whole(self, request: web.Request, steps: Sequence[Step], wire: Wire) -> web.StreamResponse:
        for step in _pieces(steps):
            match step:
                case Fail():
                    return self.refuse(step)
                case Pause() | Stall():
                    await _wait_out(step)
                case Cut():
                    _break_off(request)
                case _:
                    for _chunk in wire.chunks(step):
                        pass
        return web.json_response(wire.whole())

    async def _hung_up(self) -> None:
        async with self._changed:
            self.disconnects += 1
            self._changed.notify_all()

    async def _wait(self, condition: Any, seconds: float) -> None:
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)


def _pieces(steps: Sequence[Step]) -> Iterable[Step]:
    """The steps, with what comes in several deltas taken apart; a signature comes with the last of them."""
    for step in steps:
        if not isinstance(step, Say | Think):
            yield step
            continue
        texts = split(step.text, step.pieces)
        for number, text in enumerate(texts, 1):
            yield type(step)(text, signature=step.signature if number == len(texts) else None)
            if step.pace and number < len(texts):
                yield Pause(step.pace)


async def _wait_out(step: Pause | Stall) -> None:
    if isinstance(step, Stall):
        await asyncio.Event().wait()
    elif isinstance(step.until, asyncio.Event):
        await step.until.wait()
    else:
        await asyncio.sleep(step.until)


def _break_off(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
