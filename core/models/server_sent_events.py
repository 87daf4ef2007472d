"""Server-sent events of a response, as https://html.spec.whatwg.org/multipage/server-sent-events.html has them.

The SDKs of vendors end an answer at an empty event, which compatible servers send to keep the connection open.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterable

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end may be the first half of CR LF


async def read_event_data(chunks: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Yield the data of each event that has some.

    A last event without an empty line after it counts, since some servers omit the line. Bytes that are not UTF-8
    become U+FFFD.

    Args:
        chunks: the bytes of the response's body, in pieces of any size.
    """
    data, rest = list[bytes](), b""
    async for chunk in chunks:
        *lines, rest = _LINE_END.split(rest + chunk)
        for line in lines:
            if line:
                data += _read_data(line)
            elif text := _join(data):
                data.clear()
                yield text
            else:
                data.clear()
    for line in _LINE_END.split(rest.rstrip(b"\r")):
        data += _read_data(line)
    if text := _join(data):
        yield text


def _read_data(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []


def _join(lines: list[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace").strip()
