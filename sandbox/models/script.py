"""Scripts of model servers, independent of the vendor.

A script is a list of turns, one per request, or a function that returns the turn for a request. A turn is a list of
steps, a single step or a string:

    ScriptedOpenAI(["Hello!", [Think("hm"), CallTool("add", {"a": 1}), CallTool("add", {"a": 2})], "Done."])
    ScriptedGemini(lambda request: f"You said: {request.text}")

A turn without a final step ends with `Finish()`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Say:
    """Text in `pieces` deltas of similar length, `pace` seconds apart."""

    text: str
    pieces: int = 1
    pace: float = 0.0
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Think:
    """Visible thinking of the model."""

    text: str
    pieces: int = 1
    pace: float = 0.0
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class CallTool:
    """Tool call.

    Attributes:
        id: the id of the call; None sends none.
        pieces: number of deltas for the arguments, where the vendor has such deltas.
        raw: the arguments as text, perhaps invalid JSON, in place of `arguments`.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    pieces: int = 1
    raw: str | None = None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class SendFile:
    """File of the model: an image, or sound. Anthropic's models send none."""

    mime_type: str
    data: bytes
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Cite:
    """Web page that the answer is based on."""

    url: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause for some seconds, or until an event is set."""

    until: asyncio.Event | float


@dataclass(frozen=True, slots=True)
class Finish:
    """End of the response, with token usage.

    Attributes:
        reason: the vendor's finish reason; by default the one that fits.
    """

    reason: str | None = None
    input: int = 7
    output: int = 5
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Fail:
    """Error in the vendor's format: an HTTP status, or an event in a started stream.

    Attributes:
        code: the vendor's error code (`insufficient_quota`, `RESOURCE_EXHAUSTED`).
        retry_after: seconds until a retry, in the vendor's format.
        body: a body in place of the vendor's format.
    """

    status: int
    message: str = "scripted failure"
    code: str | None = None
    retry_after: float | None = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Chunk of JSON that is sent unchanged."""

    chunk: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CorruptChunk:
    """Invalid JSON in the middle of a stream."""

    data: str = '{"oops'


@dataclass(frozen=True, slots=True)
class DropConnection:
    """Abort of the connection."""


@dataclass(frozen=True, slots=True)
class EndStream:
    """Regular end of the stream without a finish reason."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Open connection without further data."""


Step = (
    Say
    | Think
    | CallTool
    | SendFile
    | Cite
    | Pause
    | Finish
    | Fail
    | RawChunk
    | CorruptChunk
    | DropConnection
    | EndStream
    | Stall
)
Turn = str | Step | Sequence[Step]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """Result of a tool call."""

    id: str | None
    name: str | None
    content: Any


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """Request to a model, independent of the vendor.

    Attributes:
        text: the newest user message.
        system: the system message.
        messages: (role, text) of each message except the system message, in order.
        tools: names of the available tools.
        tool_results: the tool results after the model's last message.
        body: the body of the request.
    """

    model: str
    text: str
    system: str
    messages: tuple[tuple[str, str], ...]
    tools: tuple[str, ...]
    tool_results: tuple[ToolOutcome, ...]
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    is_streaming: bool


Script = Sequence[Turn] | Callable[[ReceivedRequest], Turn]


class ScriptPlayer:
    """Turns of a script, one per request."""

    def __init__(self, script: Script = ()) -> None:
        self._respond = script if callable(script) else None
        self._turns: list[Turn] = [] if callable(script) else list(script)

    def add_turns(self, *turns: Turn) -> None:
        self._turns.extend(turns)

    def next_turn(self, request: ReceivedRequest) -> Sequence[Step]:
        """Return the scripted steps for a request, or an HTTP 400 step after the last turn."""
        if self._respond is not None:
            turn = self._respond(request)
        elif self._turns:
            turn = self._turns.pop(0)
        else:
            turn = Fail(400, "the script has no turn for this request")
        if isinstance(turn, str):
            return (Say(turn),)
        return (turn,) if isinstance(turn, Step) else turn


def split_text(text: str, pieces: int) -> list[str]:
    """Split a text into at most `pieces` parts of similar length; an empty one into [""]."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
