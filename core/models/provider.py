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
        signature: opaque bytes by which the vendor recognizes its own output; later requests send them with the text.
    """

    text: str
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """Visible part of a model's thinking; never shown to users as the answer.

    In a stream, a thought without text brings the signature of the thought before it.

    Attributes:
        signature: opaque bytes by which the vendor recognizes its own thought; later requests send them with it.
    """

    text: str
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """File for a model or from a model: its bytes, or an address.

    Attributes:
        data: the bytes; None if there is only `uri`.
        name: file name; empty if it is unknown.
        signature: opaque bytes by which the vendor recognizes a file of its model; None for other files.
    """

    mime_type: str
    data: bytes | None = None
    uri: str | None = None
    name: str = ""
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Tool call of a model, with complete arguments: a provider joins their deltas.

    Attributes:
        id: the id of the call, unique in the request; a provider may yield an empty one.
        signature: opaque bytes by which the vendor recognizes its own call; later requests send them with it.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call, with the files that the tool returned.

    Attributes:
        id: the id of the call.
        name: the name of the tool.
    """

    id: str
    name: str
    result: Mapping[str, Any]
    media: tuple[Media, ...] = ()


Part = Text | Thought | Media | ToolCall | ToolResult


def describe_part(part: Part) -> tuple[str, str]:
    """Return the kind and the content of a part as texts for people.

    The kind is `text`, `thought`, `file`, `call` or `result`. A file's content is its name, type and size, without its
    bytes; the content of a call or result is the tool's name and JSON.
    """
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
    """Message of a model request: its role and its parts.

    Attributes:
        role: `tool` for the results of the calls in the message before; `system` for the instruction, which comes
            first.
    """

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
        messages: the system message, if there is one, and the conversation.
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
    """Files that a model accepts in a request, by type and size.

    Attributes:
        max_bytes: the most bytes of one file, by MIME type; other types are not accepted.
        max_total_bytes: the most bytes of all files in a request.
    """

    max_bytes: Mapping[str, int]
    max_total_bytes: int

    def supports(self, mime_type: str, size: int) -> bool:
        """Return whether the model accepts a file of this MIME type and size in bytes.

        The caller adds up the sizes for `max_total_bytes`.
        """
        return size <= self.max_bytes.get(mime_type, -1)


NO_SUPPORTED_FILES = SupportedFiles({}, 0)

#: Files that nearly every model accepts, for external models.
DEFAULT_FILES = SupportedFiles(dict.fromkeys((*IMAGE_TYPES, PDF_TYPE), 3_900_000), max_total_bytes=14 * 2**20)


@dataclass(frozen=True, slots=True)
class Grounding:
    """Web pages that an answer is based on.

    Attributes:
        metadata: the pages in Gemini's format; those of other vendors are converted. None without pages.
        read_urls: addresses of the pages that the model read as a whole.
    """

    metadata: GroundingMetadata | None = None
    read_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """Last event of a complete stream: why the answer ended, and its token counts.

    Attributes:
        paused_content: the answer in the vendor's format, if the vendor paused it and continues it in another request;
            empty otherwise.
    """

    finish_reason: FinishReason = field(default_factory=lambda: FinishReason.STOP)
    usage: Usage = field(default_factory=Usage)
    paused_content: tuple[Mapping[str, Any], ...] = ()


ProviderEvent = Text | Thought | Media | ToolCall | Grounding | Done


def join_text(first: ProviderEvent | None, second: ProviderEvent | None) -> Text | Thought | None:
    """Return two deltas of text, or two of a thought, as one.

    Returns:
        `Text` for two `Text`s, `Thought` for two `Thought`s. None for events of other or different types, or if one has
        a signature.
    """
    match first, second:
        case Text(start, None), Text(end, None):
            return Text(start + end)
        case Thought(start, None), Thought(end, None):
            return Thought(start + end)
    return None


class Provider(Protocol):
    """Client of one vendor's models; it serves any number of concurrent calls."""

    @property
    def name(self) -> str:
        """Name of the vendor: `gemini`, `openai`, `anthropic` or `local`.

        It is part of models' full names, of error messages and, except for `gemini`, of stored thought signatures.
        """

    def supported_files(self, model: str) -> SupportedFiles:
        """Return the types and sizes of files that a model accepts.

        Args:
            model: the model's name at the vendor.
        """

    def stream(self, request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        """Send a request and yield the events of the answer; the last one is `Done`.

        It is an async generator: closing it (`contextlib.aclosing`) closes the HTTP connection.

        Raises:
            ProviderError: the request failed, or the stream broke off.
        """

    async def aclose(self) -> None:
        """Close the HTTP connections."""


class ModelHandle(NamedTuple):
    """Provider of a model, and the model's name at that vendor."""

    provider: Provider
    model: str
