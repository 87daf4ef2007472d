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
