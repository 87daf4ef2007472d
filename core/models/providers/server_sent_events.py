"""Server-sent events of a response, as https://html.spec.whatwg.org/multipage/server-sent-events.html has them.

The SDKs of vendors end an answer at an empty event, which compatible servers send to keep the connection open.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol

from core.errors import ProviderUnavailableError

#: The data of the last event of an answer, of OpenAI and compatible servers.
END = "[DONE]"

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end may be the first half of CR LF


class _Response(Protocol):
    """HTTP response of httpx or httpx2 before its body is read."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def aread(self) -> bytes: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]: ...


class ChunkReader:
    """Reader of the chunks of an answer, JSON or `END`; a server that does not stream sends one JSON body."""

    def __init__(self, response: _Response, provider: str) -> None:
        self._response = response
        self._provider = provider
        self._received = response.aiter_bytes()
        self._decoder = EventDecoder()
        self._chunks = deque[str]()
        self._has_ended = False

    async def read(self) -> str | None:
        """Return the next chunk; None after the last.

        Raises:
            ProviderUnavailableError: the connection broke.
        """
        try:
            while not (self._chunks or self._has_ended):
                await self._receive()
        except Exception as error:  # the SDKs convert no errors of their HTTP library here
            raise ProviderUnavailableError(f"{self._provider} cannot be reached ({type(error).__name__})") from error
        return self._chunks.popleft() if self._chunks else None

    async def _receive(self) -> None:
        if "json" in self._response.headers.get("content-type", ""):
            self._chunks += ((await self._response.aread()).decode("utf-8", "replace"), END)
            self._has_ended = True
        elif (received := await anext(self._received, None)) is not None:
            self._chunks += self._decoder.decode(received)
        else:
            self._chunks += self._decoder.end()
            self._has_ended = True


class EventDecoder:
    """Decoder of server-sent events, which gets the bytes of a response's body in pieces of any size.

    A last event without an empty line after it counts, since some servers omit the line. Bytes that are not UTF-8
    become U+FFFD.
    """

    def __init__(self) -> None:
        self._data = list[bytes]()  # of the event so far
        self._line = list[bytes]()  # the pieces of a line without an end yet: an image has many

    def decode(self, received: bytes) -> Iterator[str]:
        """Yield the data of each event that has some, and ends in these bytes."""
        if self._line and self._line[-1].endswith(b"\r"):
            self._line[-1] = self._line[-1][:-1]
            received = b"\r" + received  # the line end may continue
        *lines, rest = _LINE_END.split(received)
        for piece in lines:
            line = b"".join([*self._line, piece])
            self._line.clear()
            if line:
                self._data += _read_data(line)
            else:
                yield from self._end_event()
        self._line.append(rest)

    def end(self) -> Iterator[str]:
        self._data += _read_data(b"".join(self._line).rstrip(b"\r"))
        yield from self._end_event()

    def _end_event(self) -> Iterator[str]:
        text = b"\n".join(self._data).decode("utf-8", "replace").strip()
        self._data.clear()
        if text:
            yield text


def _read_data(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []
