"""The HTTP server under every scripted model: it listens, records, and plays a script."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from aiohttp import web

from sandbox.models.script import (
    CorruptChunk,
    DropConnection,
    EndStream,
    Fail,
    Finish,
    Pause,
    ReceivedRequest,
    Say,
    Script,
    ScriptPlayer,
    Stall,
    Step,
    Think,
    Turn,
    split,
)

Chunk = Mapping[str, Any]


class WireFormat(ABC):
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
        self.asked: list[ReceivedRequest] = []
        self.disconnects = 0
        self._player = ScriptPlayer(script)
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

    async def wait_for_requests(self, count: int = 1, seconds: float = 20) -> None:
        """Wait until `count` requests have come."""
        await self._wait(lambda: len(self.requests) >= count, seconds)

    async def wait_for_disconnects(self, count: int = 1, seconds: float = 20) -> None:
        """Wait until the client has hung up on `count` answers."""
        await self._wait(lambda: self.disconnects >= count, seconds)

    @abstractmethod
    def routes(self) -> list[web.RouteDef]: ...

    @abstractmethod
    def error(self, fail: Fail) -> Chunk:
        """An error's body, in the vendor's shape."""

    def event(self, chunk: Chunk) -> str | None:
        """The name of the server-sent event that a chunk is, where the vendor gives it one."""
        return None

    def refuse(self, fail: Fail) -> web.Response:
        headers = dict(fail.headers)
        if fail.retry_after is not None:
            headers.setdefault("Retry-After", f"{fail.retry_after:g}")
        text = fail.body if fail.body is not None else json.dumps(self.error(fail))
        return web.Response(status=fail.status, text=text, content_type="application/json", headers=headers)

    async def play(
        self, request: web.Request, asked: ReceivedRequest, wire: WireFormat, last: bytes
    ) -> web.StreamResponse:
        """Answer a request by the script; `last` closes a good stream."""
        async with self._changed:
            self.requests.append(dict(asked.body))
            self.asked.append(asked)
            self._changed.notify_all()
        steps = list(self._player.next(asked))
        if not any(isinstance(step, Finish | Fail | DropConnection | EndStream | Stall) for step in steps):
            steps.append(Finish())
        try:
            if asked.streaming:
                return await self._stream(request, steps, wire, last)
            return await self._whole(request, steps, wire)
        except (asyncio.CancelledError, ConnectionError):
            if not self._closing:
                await asyncio.shield(self._hung_up())
            raise

    async def _stream(
        self, request: web.Request, steps: Sequence[Step], wire: WireFormat, last: bytes
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        for step in _pieces(steps):
            if isinstance(step, Fail) and not response.prepared:
                return self.refuse(step)
            if not response.prepared:
                await response.prepare(request)
            match step:
                case Fail():
                    await response.write(self._sent(self.error(step), step.body))
                    return response
                case CorruptChunk(data):
                    await response.write(self._sent({}, data))
                case Pause() | Stall():
                    await _wait_out(step)
                case DropConnection():
                    _break_off(request)
                    return response
                case _:
                    for chunk in wire.chunks(step):
                        await response.write(self._sent(chunk))
                    if isinstance(step, EndStream):
                        return response
        await response.write(last)
        return response

    def _sent(self, chunk: Chunk, text: str | None = None) -> bytes:
        """A chunk as a server-sent event, with `text` in its place if there is one."""
        name = self.event(chunk)
        head = f"event: {name}\n" if name else ""
        return f"{head}data: {json.dumps(chunk) if text is None else text}\n\n".encode()

    async def _whole(self, request: web.Request, steps: Sequence[Step], wire: WireFormat) -> web.StreamResponse:
        for step in _pieces(steps):
            match step:
                case Fail():
                    return self.refuse(step)
                case Pause() | Stall():
                    await _wait_out(step)
                case DropConnection():
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
