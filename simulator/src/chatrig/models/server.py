"""HTTP server base of the scripted models: stores requests and plays a script."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from aiohttp import web

from chatrig.models.script import (
    CorruptChunk,
    DropConnection,
    EndStream,
    Fail,
    Finish,
    Pause,
    ReceivedRequest,
    Say,
    Script,
    ScriptedResponse,
    ScriptPlayer,
    Stall,
    Step,
    Think,
    split_text,
)

Chunk = Mapping[str, Any]


class WireFormat(ABC):
    """Encoder of one scripted response in a vendor's JSON format."""

    @abstractmethod
    def to_chunks(self, step: Step) -> Iterable[Chunk]:
        """Yield the JSON chunks of a step for a stream; add the step to `body` meanwhile.

        Iterate also if only `body` is needed. The text of a `Say` or `Think` is one delta: `pieces` is ignored. There
        are no chunks for a step that this vendor does not have.
        """

    @abstractmethod
    def body(self) -> Chunk:
        """Return the JSON body of a response without streaming, with all steps so far."""

    def error_chunks(self, fail: Fail, error_body: Chunk) -> Iterable[Chunk]:
        """Yield the JSON chunks of an error after the start of a stream.

        Args:
            error_body: the JSON body of the same error as an HTTP response.
        """
        yield error_body


class ScriptedServer(ABC):
    """Scripted model server on a free port of this machine, an async context manager."""

    #: Variables with which the vendor's client takes its base URL and its key.
    url_variable: ClassVar[str]
    key_variable: ClassVar[str]

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        port: int = 0,
    ) -> None:
        """Create a server, which starts when its context is entered.

        Args:
            script: the responses, or a function that returns the response for a request (see `chatrig.models.script`).
            api_key: the only accepted key; None accepts any key and requests without one.
            models: the names of the known models; None accepts any name, and lists none.
            port: the port of the server; 0 for any free one.
        """
        self.requests: list[dict[str, Any]] = []
        self.received: list[ReceivedRequest] = []
        self.disconnects = 0
        self._player = ScriptPlayer(script)
        self._api_key = api_key
        self._models = models
        self._port = port
        self._changed = asyncio.Condition()
        self._is_closing = False
        self._origin = ""

    @property
    @abstractmethod
    def base_url(self) -> str: ...

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of a bot: the address and a key."""
        return {self.url_variable: self.base_url, self.key_variable: self._api_key or "scripted"}

    def add_responses(self, *responses: ScriptedResponse) -> None:
        """Add responses at the end of the script; a script that is a function ignores them."""
        self._player.add_responses(*responses)

    def reset(self) -> None:
        """Remove the script and the received requests."""
        self._player.clear()
        self.requests.clear()
        self.received.clear()
        self.disconnects = 0

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(self.list_routes())
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        await self._runner.cleanup()

    async def wait_for_requests(self, count: int = 1, seconds: float = 20) -> None:
        """Wait until the server has accepted `count` generation requests since its start.

        Requests with a wrong key, an unknown model or a missing version do not count. Those that the script answers
        with an error do.

        Raises:
            TimeoutError: fewer requests were accepted within `seconds`.
        """
        await self._wait_until(lambda: len(self.requests) >= count, seconds)

    async def wait_for_disconnects(self, count: int = 1, seconds: float = 20) -> None:
        """Wait until the client has aborted `count` responses since the server's start.

        Raises:
            TimeoutError: fewer were aborted within `seconds`.
        """
        await self._wait_until(lambda: self.disconnects >= count, seconds)

    @abstractmethod
    def list_routes(self) -> list[web.RouteDef]: ...

    @abstractmethod
    def error_body(self, fail: Fail) -> Chunk:
        """Return the JSON body of an error in the vendor's format."""

    def event_name(self, chunk: Chunk) -> str | None:
        """Return the `event` field of the server-sent event for a chunk; None for none."""
        return None

    def error_response(self, fail: Fail) -> web.Response:
        """Return the HTTP response of a scripted error.

        The body is `fail.body` or, without it, the JSON of `error_body`. `fail.headers` are sent, too. A delay is sent
        as `Retry-After`, unless they have one.
        """
        headers = dict(fail.headers)
        if fail.retry_after is not None:
            headers.setdefault("Retry-After", f"{fail.retry_after:g}")
        text = fail.body if fail.body is not None else json.dumps(self.error_body(fail))
        return web.Response(status=fail.status, text=text, content_type="application/json", headers=headers)

    async def read_body(self, request: web.Request, *required: str) -> dict[str, Any]:
        """Return the JSON object that a request has as its body.

        Raises:
            web.HTTPBadRequest: the body is no JSON object, or has no field of the name `required`.
        """
        try:
            body = await request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise self._bad_request("the body is not a JSON object")
        if missing := [name for name in required if name not in body]:
            raise self._bad_request(f"missing required parameter: {missing[0]}")
        return body

    def _bad_request(self, message: str) -> web.HTTPBadRequest:
        text = json.dumps(self.error_body(Fail(400, message)))
        return web.HTTPBadRequest(text=text, content_type="application/json")

    async def play(
        self, request: web.Request, received: ReceivedRequest, wire_format: WireFormat, terminator: bytes
    ) -> web.StreamResponse:
        """Store a request, and send the next response of the script.

        The response is streamed if the request says so. It is HTTP 400 if the script has none left. A response that the
        client aborts is counted in `disconnects`.

        Args:
            received: the parsed request.
            wire_format: an encoder that no other response uses.
            terminator: bytes after the last step, unless an error, `EndStream` or `DropConnection` ends the stream.
        """
        async with self._changed:
            self.requests.append(dict(received.body))
            self.received.append(received)
            self._changed.notify_all()
        steps = list(self._player.take_response(received))
        if not any(isinstance(step, Finish | Fail | DropConnection | EndStream | Stall) for step in steps):
            steps.append(Finish())
        try:
            if received.is_streaming:
                return await self._respond_in_chunks(request, steps, wire_format, terminator)
            return await self._respond_at_once(request, steps, wire_format)
        except (asyncio.CancelledError, ConnectionError):
            if not self._is_closing:
                await asyncio.shield(self._record_disconnect())
            raise

    async def _respond_in_chunks(
        self, request: web.Request, steps: Sequence[Step], wire_format: WireFormat, terminator: bytes
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        for step in _split_steps(steps):
            if isinstance(step, Fail) and not response.prepared:
                return self.error_response(step)
            if not response.prepared:
                await response.prepare(request)
            match step:
                case Fail(body=None):
                    for chunk in wire_format.error_chunks(step, self.error_body(step)):
                        await response.write(self._encode_event(chunk))
                    return response
                case Fail():
                    await response.write(self._encode_event(self.error_body(step), step.body))
                    return response
                case CorruptChunk(data):
                    await response.write(self._encode_event({}, data))
                case Pause() | Stall():
                    await _wait_for_pause(step)
                case DropConnection():
                    _abort_connection(request)
                    return response
                case _:
                    for chunk in wire_format.to_chunks(step):
                        await response.write(self._encode_event(chunk))
                    if isinstance(step, EndStream):
                        return response
        await response.write(terminator)
        return response

    def _encode_event(self, chunk: Chunk, text: str | None = None) -> bytes:
        """Return a server-sent event whose data is the JSON of `chunk`, or `text` instead."""
        name = self.event_name(chunk)
        head = f"event: {name}\n" if name else ""
        return f"{head}data: {json.dumps(chunk) if text is None else text}\n\n".encode()

    async def _respond_at_once(
        self, request: web.Request, steps: Sequence[Step], wire_format: WireFormat
    ) -> web.StreamResponse:
        for step in _split_steps(steps):
            match step:
                case Fail():
                    return self.error_response(step)
                case Pause() | Stall():
                    await _wait_for_pause(step)
                case DropConnection():
                    _abort_connection(request)
                case _:
                    for _chunk in wire_format.to_chunks(step):
                        pass
        return web.json_response(wire_format.body())

    async def _record_disconnect(self) -> None:
        async with self._changed:
            self.disconnects += 1
            self._changed.notify_all()

    async def _wait_until(self, condition: Any, seconds: float) -> None:
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)


def _split_steps(steps: Sequence[Step]) -> Iterable[Step]:
    """Yield the steps, but for each `Say` and `Think` one step per delta.

    A `Pause` comes between two deltas if the step has a pace.
    """
    for step in steps:
        if not isinstance(step, Say | Think):
            yield step
            continue
        texts = split_text(step.text, step.pieces)
        for number, text in enumerate(texts, 1):
            yield type(step)(text, signature=step.signature if number == len(texts) else None)
            if step.pace and number < len(texts):
                yield Pause(step.pace)


async def _wait_for_pause(step: Pause | Stall) -> None:
    if isinstance(step, Stall):
        await asyncio.Event().wait()
    elif isinstance(step.until, asyncio.Event):
        await step.until.wait()
    else:
        await asyncio.sleep(step.until)


def _abort_connection(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
