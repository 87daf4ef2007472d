"""Provider protocol: one model request, and the stream of the model's answer.

A provider calls the API of one vendor, and is independent of ADK. `ModelAdapter` connects ADK to providers. The parts
of a message and the events of a stream are the same types: `Text` is a whole text in a message, and the next delta in a
stream.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from google.genai.types import FinishReason, GenerateContentConfig, GroundingMetadata

from core.usage.meter import Usage

Role = Literal["system", "user", "assistant", "tool"]

#: Formats that nearly every vision model accepts.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")

PDF_TYPE = "application/pdf"


@dataclass(frozen=True, slots=True)
class Text:
    """Text: whole in a message, the next delta in a stream.

    Attributes:
        signature: opaque bytes by which the vendor recognizes its own output; later requests send them with it.
    """

    text: str
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """Visible part of a model's thinking, never shown as the answer; for `signature` see `Text`.

    In a stream, a thought without text brings the signature of the thought before it.
    """

    text: str
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """File for a model or from a model: its bytes, or else an address; for `signature` see `Text`."""

    mime_type: str
    data: bytes | None = None
    uri: str | None = None
    name: str = ""
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Tool call of a model, with complete arguments: a provider joins their deltas.

    The id is unique in the request; a provider may yield an empty one. For `signature` see `Text`.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call, with the files that the tool returned; `id` is the call's, `name` the tool's."""

    id: str
    name: str
    result: Mapping[str, Any]
    media: tuple[Media, ...] = ()


Part = Text | Thought | Media | ToolCall | ToolResult


def describe_part(part: Part) -> tuple[str, str]:
    """Return the kind and the content of a part as texts for people, without the bytes of files."""
    match part:
        case Text(text):
            return "text", text
        case Thought(text):
            return "thought", text
        case Media(kind, data, uri, name):
            address = "" if uri is None or uri.startswith("data:") else uri
            size = "" if data is None else f"{len(data)} bytes"
            return "file", ", ".join(filter(None, (name or address, kind, size)))
        case ToolCall(_, name, arguments):
            return "call", f"{name}({json.dumps(arguments, ensure_ascii=False, default=str)})"
        case ToolResult(_, name, result):
            return "result", f"{name}: {json.dumps(result, ensure_ascii=False, default=str)}"


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """Message of a request; `tool` has the results of the calls in the message before, and `system` comes first."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Declaration of a tool for a model; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Request to a model: messages, tools and options of one call.

    Attributes:
        model: the model's name at the vendor.
        config: ADK's configuration of the call. A provider reads sampling, limits and its own options there (Gemini's
            built-in tools), but never the system instruction or the functions: `messages` and `tools` have them.
        paused_content: the content of an answer that the vendor paused: see `Done`. The answer continues after it.
        report_usage: called whenever the vendor sends a token count. A cancelled answer has no `Done` with a count.
    """

    model: str
    messages: Sequence[ModelMessage]
    tools: Sequence[ToolSpec] = ()
    config: GenerateContentConfig = field(default_factory=GenerateContentConfig)
    paused_content: tuple[Mapping[str, Any], ...] = ()
    report_usage: Callable[[Usage], None] = field(default=lambda _usage: None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SupportedFiles:
    """Files that a model accepts: the most bytes of one file by MIME type, and of all files in a request."""

    max_bytes: Mapping[str, int]
    max_total_bytes: int

    def supports(self, mime_type: str, size: int) -> bool:
        """Return whether the model accepts a file; the caller adds up the sizes for `max_total_bytes`."""
        return size <= self.max_bytes.get(mime_type, -1)


NO_SUPPORTED_FILES = SupportedFiles({}, 0)

#: Files that nearly every model accepts, for external models.
DEFAULT_FILES = SupportedFiles(dict.fromkeys((*IMAGE_TYPES, PDF_TYPE), 3_900_000), max_total_bytes=14 * 2**20)


@dataclass(frozen=True, slots=True)
class Grounding:
    """Web pages that an answer is based on, in Gemini's format; the model read `read_urls` as a whole."""

    metadata: GroundingMetadata | None = None
    read_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """Last event of a complete stream: why the answer ended, and its token counts.

    If the vendor paused the answer, `paused_content` is the answer in its format, for a request that continues it.
    """

    finish_reason: FinishReason = field(default_factory=lambda: FinishReason.STOP)
    usage: Usage = field(default_factory=Usage)
    paused_content: tuple[Mapping[str, Any], ...] = ()


ProviderEvent = Text | Thought | Media | ToolCall | Grounding | Done


def join_text(first: ProviderEvent | None, second: ProviderEvent | None) -> Text | Thought | None:
    """Return two deltas of text, or of a thought, as one; None for other events, or if one has a signature."""
    match first, second:
        case Text(start, None), Text(end, None):
            return Text(start + end)
        case Thought(start, None), Thought(end, None):
            return Thought(start + end)
    return None


class Provider(Protocol):
    """Client of one vendor's models, by their names there; it serves any number of concurrent calls."""

    @property
    def name(self) -> str:
        """Vendor (`gemini`, `openai`, `anthropic`, `local`), as in full names of models and stored signatures."""

    def supported_files(self, model: str) -> SupportedFiles: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        """Send a request and yield the events of the answer; the last one is `Done`.

        It is an async generator: closing it (`contextlib.aclosing`) closes the HTTP connection.

        Raises:
            ProviderError: the request failed, or the stream broke off.
        """

    async def aclose(self) -> None: ...


class ModelHandle(NamedTuple):
    """Provider of a model, and the model's name at that vendor."""

    provider: Provider
    model: str
