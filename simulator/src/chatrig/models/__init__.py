"""Model servers that play a script in the API of OpenAI, Anthropic or Gemini."""

from chatrig.models.anthropic import ScriptedAnthropic
from chatrig.models.gemini import ScriptedGemini
from chatrig.models.openai import ScriptedOpenAI
from chatrig.models.script import (
    CallTool,
    Cite,
    CorruptChunk,
    DropConnection,
    EndStream,
    Fail,
    Finish,
    Pause,
    RawChunk,
    ReceivedRequest,
    ReceivedToolResult,
    Say,
    Script,
    ScriptedResponse,
    SendFile,
    Stall,
    Step,
    Think,
)

__all__ = [
    "CallTool",
    "Cite",
    "CorruptChunk",
    "DropConnection",
    "EndStream",
    "Fail",
    "Finish",
    "Pause",
    "RawChunk",
    "ReceivedRequest",
    "ReceivedToolResult",
    "Say",
    "Script",
    "ScriptedAnthropic",
    "ScriptedGemini",
    "ScriptedOpenAI",
    "ScriptedResponse",
    "SendFile",
    "Stall",
    "Step",
    "Think",
]
