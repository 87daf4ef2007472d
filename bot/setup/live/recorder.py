"""Record of the HTTP exchanges with a platform, and their shapes without any value."""

import email
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
from yarl import URL

from channels.slack.client.api import is_transient
from core.errors import SettingsError

#: Names of JSON fields on both platforms; any other key is a value, such as an id.
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]*")

#: Fields whose keys are values although they look like names: of emoji, languages and the like.
_MAP_NAME = re.compile(r"emoji|event_payload|fields|\w+_localizations")

#: Key for all keys of a JSON object that are values.
ANY_KEY = "*"

_PATH_WORD = re.compile(r"@?[a-z-]+|oauth2")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP request to a platform and the response.

    Attributes:
        call: Slack's method, or Discord's HTTP method and path with `{}` for each id.
        status: the HTTP status; 0 without a response.
        retry_after: the header `Retry-After` in seconds; 0 without one.
        response: the JSON of the response; None for anything else.
    """

    call: str
    status: int
    retry_after: float
    request: Any
    response: Any

    def describe_failure(self) -> str:
        """Return the HTTP status or Slack's error code of a temporary failure; empty for any other result."""
        code = self.response.get("error", "") if isinstance(self.response, dict) else ""
        if self.status == 429:
            return f"HTTP 429 (wait {self.retry_after:g} s)"
        if not self.status:
            return "no response"
        return (code or f"HTTP {self.status}") if is_transient(self.status, str(code)) else ""


class ExchangeRecorder:
    """Sees the exchanges of a platform's client by an aiohttp trace, in order of their end.

    Requests to other URLs than those below `base_url` are ignored.
    """

    def __init__(self, base_url: str) -> None:
        self._base = URL(base_url).path.rstrip("/") + "/"
        self._host = URL(base_url).origin()
        self.exchanges: list[Exchange] = []

    def attach(self, trace: aiohttp.TraceConfig) -> None:
        """Add the callbacks of this recorder to a trace, before a session has it."""
        trace.on_request_start.append(self._on_start)
        trace.on_request_chunk_sent.append(self._on_chunk)
        trace.on_request_end.append(self._on_end)
        trace.on_request_exception.append(self._on_exception)

    async def _on_start(self, _session: object, context: Any, _start: object) -> None:
        context.body = bytearray()

    async def _on_chunk(self, _session: object, context: Any, sent: aiohttp.TraceRequestChunkSentParams) -> None:
        context.body += sent.chunk

    async def _on_end(self, _session: object, context: Any, end: aiohttp.TraceRequestEndParams) -> None:
        response = end.response
        headers = response.request_info.headers
        request = dict(end.url.query) | _parse_body(headers.get("Content-Type", ""), bytes(context.body))
        try:
            answer = json.loads(await response.read())
        except ValueError:
            answer = None
        retry_after = re.fullmatch(r"[\d.]+", response.headers.get("Retry-After", "")) or ["0"]
        self._add(end.method, end.url, Exchange("", response.status, float(retry_after[0]), request, answer))

    async def _on_exception(self, _session: object, _context: Any, end: aiohttp.TraceRequestExceptionParams) -> None:
        self._add(end.method, end.url, Exchange("", 0, 0.0, None, None))

    def _add(self, method: str, url: URL, exchange: Exchange) -> None:
        if url.origin() != self._host or not url.path.startswith(self._base):
            return
        parts = url.raw_path.removeprefix(self._base).split("/")
        if len(parts) == 1 and "." in parts[0]:
            call = parts[0]
        else:
            call = f"{method} /{'/'.join(part if _PATH_WORD.fullmatch(part) else '{}' for part in parts)}"
        self.exchanges.append(replace(exchange, call=call))


def _parse_body(content_type: str, body: bytes) -> dict[str, Any]:
    kind = content_type.partition(";")[0]
    if kind == "multipart/form-data":
        for part in email.message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body).walk():
            if part.get_param("name", header="content-disposition") == "payload_json":
                kind = "application/json"
                body = bytes(part.get_payload(decode=True))
    if kind == "application/json" and body:
        parsed = json.loads(body)
        return parsed if isinstance(parsed, dict) else {}
    return dict(parse_qsl(body.decode())) if kind == "application/x-www-form-urlencoded" else {}


def to_shape(value: Any, *, is_map: bool = False) -> Any:
    """Return a JSON value without its values: empty texts, zeros, and false.

    Keys that are values (all of them with `is_map`) become `ANY_KEY`. A list has each shape of its elements once.
    """
    match value:
        case dict():
            shape: dict[str, Any] = {}
            for key, inner in value.items():
                is_name = not is_map and _FIELD_NAME.fullmatch(key) is not None
                found = to_shape(inner, is_map=is_name and _MAP_NAME.fullmatch(key) is not None)
                name = key if is_name else ANY_KEY
                shape[name] = merge_shapes(shape[name], found) if name in shape else found
            return shape
        case list():
            return [json.loads(shape) for shape in dict.fromkeys(json.dumps(to_shape(inner)) for inner in value)]
        case bool():
            return False
        case int() | float():
            return 0
        case str():
            return ""
    return None


def merge_shapes(one: Any, other: Any) -> Any:
    """Return a shape with the fields of both."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {name: merge_shapes(one[name], other[name]) for name in one.keys() & other.keys()}
        return one | other | both
    if isinstance(one, list) and isinstance(other, list):
        return one + [shape for shape in other if shape not in one]
    return other if one is None else one


@contextmanager
def open_recording(path: Path | None) -> Iterator[dict[str, ExchangeRecorder]]:
    """Create the file of a recording; yield the recorders by platform whose shapes are written to it at the end.

    Only the user may read the file. A file that exists is an error. Without a path, nothing is written.
    """
    recorders: dict[str, ExchangeRecorder] = {}
    if path is None:
        yield recorders
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SettingsError(f"--record: {path} exists: name another file, or remove it") from None
    except OSError as error:
        raise SettingsError(f"--record: {path} cannot be written to ({error.strerror})") from error
    with os.fdopen(descriptor, "w") as file:
        try:
            yield recorders
        finally:
            file.write(format_recording(recorders))


def format_recording(recorders: Mapping[str, ExchangeRecorder]) -> str:
    """Return the distinct shapes of all exchanges as JSON, one exchange a line."""
    platforms = []
    for name, recorder in recorders.items():
        shapes = [
            json.dumps(
                {
                    "call": exchange.call,
                    "status": exchange.status,
                    "request": to_shape(exchange.request),
                    "response": to_shape(exchange.response),
                }
            )
            for exchange in recorder.exchanges
        ]
        lines = ",\n".join(f"    {shape}" for shape in dict.fromkeys(shapes))
        platforms.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    return "{\n" + ",\n".join(platforms) + "\n}\n"
