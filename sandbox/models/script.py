"""What a scripted model does, in words that every vendor's wire can say.

A script is a list of turns, one for each request, or a function that answers a request with a turn. A turn is
a list of steps; a lone step or a lone string will do:

    ScriptedOpenAI(["Hello!", [Think("hm"), Call("add", {"a": 1}), Call("add", {"a": 2})], "Done."])
    ScriptedGemini(lambda asked: f"You said: {asked.text}")

A turn that does not say how it ends, ends well.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Say:
    """Text, in `pieces` deltas about as long as each other, with `pace` seconds between two of them."""

    text: str
    pieces: int = 1
    pace: float = 0.0
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Think:
    """Thinking that the model lets see."""

    text: str
    pieces: int = 1
    pace: float = 0.0
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class CallTool:
    """A tool call.

    Attributes:
        id: the call's id; without one the wire carries none.
        pieces: over how many deltas the arguments are split, where the wire knows such a thing (OpenAI).
        raw: the arguments as they stand, which may be no JSON at all (OpenAI).
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    pieces: int = 1
    raw: str | None = None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing comes for some seconds, or until an event is set."""

    until: asyncio.Event | float


@dataclass(frozen=True, slots=True)
class Finish:
    """How the model ends: `reason` in the vendor's own words, or by default what fits; usage in tokens."""

    reason: str | None = None
    input: int = 7
    output: int = 5
    thinking: int = 0
    cached: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Fail:
    """An error in the vendor's shape: as the answer's HTTP status, or within the stream once that has begun.

    Attributes:
        code: the vendor's word for it (`insufficient_quota`, `RESOURCE_EXHAUSTED`).
        retry_after: seconds, told the way the vendor tells them.
        body: the body as it stands, instead of the vendor's shape.
    """

    status: int
    message: str = "scripted failure"
    code: str | None = None
    retry_after: float | None = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawChunk:
    """A chunk as it stands (JSON), for what this language has no word for."""

    chunk: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CorruptChunk:
    """Data that is no chunk, nor JSON at all, in the middle of a stream."""

    data: str = '{"oops'


@dataclass(frozen=True, slots=True)
class DropConnection:
    """The connection breaks."""


@dataclass(frozen=True, slots=True)
class EndStream:
    """The stream ends in good order, but without the model's having said that it is done."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing comes any more, and the connection stays open."""


Step = Say | Think | CallTool | Pause | Finish | Fail | RawChunk | CorruptChunk | DropConnection | EndStream | Stall
Turn = str | Step | Sequence[Step]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool gave back."""

    id: str | None
    name: str | None
    content: Any


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as a script reads it, whatever the wire.

    Attributes:
        text: what the newest user message says.
        system: the system message.
        messages: (role, text) of each message, in order, the system message left out.
        tools: the names of the tools that the model may call.
        results: the tool results that came since the model last spoke.
        body: the request as it came.
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
    """Hands out the turns of a script, one a request."""

    def __init__(self, script: Script = ()) -> None:
        self._respond = script if callable(script) else None
        self._turns: list[Turn] = [] if callable(script) else list(script)

    def add_turns(self, *turns: Turn) -> None:
        self._turns.extend(turns)

    def next_turn(self, request: ReceivedRequest) -> Sequence[Step]:
        """The turn for a request; one for which the script has nothing is refused with status 400."""
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
    """`text` in at most `pieces` parts about as long as each other; an empty text is one empty part."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
