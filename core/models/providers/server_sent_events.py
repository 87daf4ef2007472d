"""Server-sent events of a response, as https://html.spec.whatwg.org/multipage/server-sent-events.html has them.

The SDKs of vendors end an answer at an empty event, which compatible servers send to keep the connection open.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import aclosing
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


async def read_chunks(response: _Response, provider: str) -> AsyncGenerator[str, None]:
    """Yield the data of each chunk of an answer: JSON, or `END`.

    A server that does not stream sends the whole answer as one JSON body.

    Args:
        provider: the name of the provider, for errors.

    Raises:
        ProviderUnavailableError: the connection broke.
    """
    try:
        if "json" in response.headers.get("content-type", ""):
            yield (await response.aread()).decode("utf-8", "replace")
            yield END
            return
        async with aclosing(read_event_data(response.aiter_bytes())) as chunks:
            async for data in chunks:
                yield data
    except Exception as error:  # the SDKs convert no errors of their HTTP library here
        raise ProviderUnavailableError(f"{provider} cannot be reached ({type(error).__name__})") from error


async def read_event_data(chunks: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Yield the data of each event that has some.

    A last event without an empty line after it counts, since some servers omit the line. Bytes that are not UTF-8
    become U+FFFD.

    Args:
        chunks: the bytes of the response's body, in pieces of any size.
    """
    data, begun = list[bytes](), list[bytes]()  # the pieces of a line without an end yet: an image has many
    async for chunk in chunks:
        if begun and begun[-1].endswith(b"\r"):
            begun[-1], chunk = begun[-1][:-1], b"\r" + chunk  # noqa: PLW2901 - the line end may continue
        *lines, rest = _LINE_END.split(chunk)
        for piece in lines:
            line = b"".join([*begun, piece])
            begun.clear()
            if line:
                data += _read_data(line)
            elif text := _join(data):
                data.clear()
                yield text
            else:
                data.clear()
        begun.append(rest)
    data += _read_data(b"".join(begun).rstrip(b"\r"))
    if text := _join(data):
        yield text


def _read_data(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []


def _join(lines: list[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace").strip()
