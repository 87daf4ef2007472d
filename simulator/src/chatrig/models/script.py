"""Scripts of model servers, independent of the vendor.

A script is a list of responses, one per request, or a function that returns the response for a request. A response is a
list of steps, a single step or a string, which means `Say`.

    ScriptedOpenAI(["Hello!", [Think("hm"), CallTool("add", {"a": 1}), CallTool("add", {"a": 2})], "Done."])
    ScriptedGemini(lambda request: f"You said: {request.text}")

A response without a step that ends it ends with `Finish()`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Say:
    """Step of a scripted response: text of the answer.

    Attributes:
        pieces: the greatest number of deltas, which are equally long but for the last (see `split_text`).
        pace: seconds between two deltas.
        signature: the thought signature, sent with the last delta (Gemini); None sends none.
    """

    text: str
    pieces: int = 1
    pace: float = 0.0
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Think:
    """Step of a scripted response: text of the model's visible thinking.

    Attributes:
        pieces: the greatest number of deltas, which are equally long but for the last (see `split_text`).
        pace: seconds between two deltas.
        signature: the thought signature, sent with the last delta (Gemini, Anthropic); None sends none.
    """

    text: str
    pieces: int = 1
    pace: float = 0.0
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class CallTool:
    """Step of a scripted response: a tool call.

    Attributes:
        id: the id of the call; None sends none (Anthropic, OpenAI's Responses API: a numbered one).
        pieces: the greatest number of deltas of the arguments (OpenAI, Anthropic).
        raw: arguments as JSON text, which may be invalid, instead of `arguments` (OpenAI, Anthropic's streams).
        signature: the thought signature of the call (Gemini); None sends none.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    pieces: int = 1
    raw: str | None = None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class SendFile:
    """Step of a scripted response: a generated image or audio file (OpenAI, Gemini).

    OpenAI's chat completions have it only as streams, its Responses API has only images.

    Attributes:
        data: the content of the file.
        signature: the thought signature of the part (Gemini); None sends none.
    """

    mime_type: str
    data: bytes
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Cite:
    """Step of a scripted response: citation of a web page that the answer is based on.

    OpenAI's chat completions and Anthropic's messages have it only as streams.
    """

    url: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """Step of a scripted response: a pause before the next step.

    Attributes:
        until: the number of seconds, or an event that ends the pause.
    """

    until: asyncio.Event | float


@dataclass(frozen=True, slots=True)
class Finish:
    """Step of a scripted response: its regular end, with the token usage.

    Attributes:
        reason: the vendor's finish reason; None for the regular one.
        input: prompt tokens, including `cached` and `cache_write`.
        output: tokens of the answer, without `thinking`.
        thinking: tokens of the model's thinking.
        cached: prompt tokens that were read from the prompt cache.
        cache_write: prompt tokens that were written to the prompt cache.
    """

    reason: str | None = None
    input: int = 7
    output: int = 5
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Fail:
    """Last step of a scripted response: an error in the vendor's format.

    It is a response with an HTTP error status or, after the start of a stream, an event.

    Attributes:
        code: the vendor's error code, such as `insufficient_quota`.
        retry_after: seconds until a retry, as the vendor sends them; None sends none.
        body: text of the body instead of the vendor's format.
        headers: further response headers.
    """

    status: int
    message: str = "scripted failure"
    code: str | None = None
    retry_after: float | None = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Step of a scripted response: a JSON chunk that is sent unchanged in a stream."""

    chunk: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CorruptChunk:
    """Step of a scripted response: an event of a stream whose data is not valid JSON."""

    data: str = '{"oops'


@dataclass(frozen=True, slots=True)
class DropConnection:
    """Step of a scripted response: abort of the TCP connection."""


@dataclass(frozen=True, slots=True)
class EndStream:
    """Step of a scripted response: end of a stream without a finish reason.

    It has no effect on a response that is not streamed.
    """


@dataclass(frozen=True, slots=True)
class Stall:
    """Step of a scripted response: no further data until the connection is closed."""


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
ScriptedResponse = str | Step | Sequence[Step]


@dataclass(frozen=True, slots=True)
class ReceivedToolResult:
    """Result of a tool call in a request: the client sends it back to the model.

    Attributes:
        id: the id of the call; None if the request has none (Gemini).
        name: the name of the tool; None if the message history has no such call.
        content: the decoded JSON result; a result that is not JSON as text.
    """

    id: str | None
    name: str | None
    content: Any


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """Parsed request to a model, independent of the vendor.

    Attributes:
        model: the name of the model.
        text: the newest text of a user; "" without one.
        system: the system message; "" without one.
        messages: (role, text) of each message except the system message, in order; roles are the vendor's.
        tools: names of the available tools.
        tool_results: the tool results after the model's last message.
        body: the JSON body of the request.
        headers: the HTTP headers of the request.
        is_streaming: whether the client requests a stream.
    """

    model: str
    text: str
    system: str
    messages: tuple[tuple[str, str], ...]
    tools: tuple[str, ...]
    tool_results: tuple[ReceivedToolResult, ...]
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    is_streaming: bool


Script = Sequence[ScriptedResponse] | Callable[[ReceivedRequest], ScriptedResponse]


class ScriptPlayer:
    """Player of a script: it returns the response for each request to the model."""

    def __init__(self, script: Script = ()) -> None:
        self._respond = script if callable(script) else None
        self._responses: list[ScriptedResponse] = [] if callable(script) else list(script)

    def add_responses(self, *responses: ScriptedResponse) -> None:
        """Add responses at the end of the script; a script that is a function ignores them."""
        self._responses.extend(responses)

    def clear(self) -> None:
        """Remove the responses that are left; a script that is a function stays."""
        self._responses.clear()

    def take_response(self, request: ReceivedRequest) -> Sequence[Step]:
        """Return the steps of the response to a request.

        A script that is a function is called with the request. Otherwise the next response is removed from the script.

        Returns:
            The steps of the response, a text as one `Say`; one `Fail` with status 400 if the script has none left.
        """
        if self._respond is not None:
            response = self._respond(request)
        elif self._responses:
            response = self._responses.pop(0)
        else:
            response = Fail(400, "the script has no turn for this request")
        if isinstance(response, str):
            return (Say(response),)
        return (response,) if isinstance(response, Step) else response


def decode_tool_result(text: str) -> Any:
    """Return the decoded JSON of a tool's result, or the text of a result that is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def split_text(text: str, pieces: int) -> list[str]:
    """Split a text into at most `pieces` parts, equal but for the last; "" into [""]."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
