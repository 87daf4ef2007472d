"""What a model provider is: it takes a request and streams what the model says.

A provider knows one vendor's wire and nothing of ADK; `ModelAdapter` is the one bridge between the two.
The parts of a message and the pieces of a stream are the same types: a `Text` in a message is a whole text,
a `Text` in a stream is the next piece of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from google.genai.types import FinishReason, GenerateContentConfig

from core.usage.meter import Usage

Role = Literal["system", "user", "assistant", "tool"]

#: What nearly every model that sees takes.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")

PDF_TYPE = "application/pdf"


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """What a model that thinks let see of its thinking; never shown to users as the answer.

    In a stream, one without text is the signature of the thought before it.
    """

    text: str
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound or a document: by its bytes, or by an address that the provider can read."""

    mime_type: str
    data: bytes | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call: a provider puts the pieces of the wire together before it yields one."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    name: str
    result: Mapping[str, Any]
    media: tuple[Media, ...] = ()


Part = Text | Thought | Media | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class ModelMessage:
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
    """A tool as the model sees it; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model.

    `messages` starts with the system message where there is one. `config` is ADK's own configuration of the
    call: a provider reads sampling, limits and what is particular to it (Gemini's built-in tools) from there,
    but never the system instruction nor the function declarations, which stand in `messages` and `tools`. It calls
    `tell` as soon as the vendor has counted tokens: an answer that is broken off has no `Done` to tell them.
    """

    model: str
    messages: Sequence[ModelMessage]
    tools: Sequence[ToolSpec] = ()
    config: GenerateContentConfig = field(default_factory=GenerateContentConfig)
    report_usage: Callable[[Usage], None] = field(default=lambda _usage: None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SupportedFiles:
    """The files that a model can be given, beside text.

    Attributes:
        kinds: by MIME type, of how many bytes one may be.
        total: how many bytes all files of a request may have together.
    """

    max_bytes: Mapping[str, int]
    max_total_bytes: int

    def supports(self, mime_type: str, size: int) -> bool:
        """Whether it takes a file of that kind and of so many bytes."""
        return size <= self.max_bytes.get(mime_type, -1)


#: A model that takes no files.
NO_FILES = SupportedFiles({}, 0)

#: What a model takes of which nothing is known.
DEFAULT_FILES = SupportedFiles(dict.fromkeys((*IMAGE_TYPES, PDF_TYPE), 3_900_000), max_total_bytes=14 * 2**20)


@dataclass(frozen=True, slots=True)
class Done:
    """The model has said all: the last event of a good stream."""

    finish_reason: FinishReason = field(default_factory=lambda: FinishReason.STOP)
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Failed:
    """The model could not go on: the last event of a bad stream. `error` is of `core.errors`' tree."""

    error: Exception


ProviderEvent = Text | Thought | ToolCall | Done | Failed


def join_text(first: ProviderEvent | None, second: ProviderEvent | None) -> Text | Thought | None:
    """Return two texts or two thoughts as one; None if they are something else or have a signature."""
    match first, second:
        case Text(start, None), Text(end, None):
            return Text(start + end)
        case Thought(start, None), Thought(end, None):
            return Thought(start + end)
    return None


class Provider(Protocol):
    """A vendor's models, through its own SDK.

    One instance serves any number of calls at once.
    """

    @property
    def name(self) -> str:
        """The vendor, as in `MODEL`, in errors and in signatures: `gemini`, `openai`, `anthropic`, `local`."""

    def supported_files(self, model: str) -> SupportedFiles:
        """The files that a model of the vendor's can be given."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ProviderEvent]:
        """Send `request` and yield what comes, ending with one `Done` or one `Failed`.

        It is an async generator: closing it (`contextlib.aclosing`) closes the HTTP connection.
        """

    async def aclose(self) -> None:
        """Give back the connections."""


class ModelHandle(NamedTuple):
    """A model that may be asked: its provider, and the name that it has there."""

    provider: Provider
    model: str
