"""Scripted model servers that speak the vendors' wire formats."""

from sandbox.models.anthropic import ScriptedAnthropic
from sandbox.models.gemini import ScriptedGemini
from sandbox.models.openai import ScriptedOpenAI
from sandbox.models.script import (
    Asked,
    Call,
    Cut,
    End,
    Fail,
    Finish,
    Garble,
    Pause,
    Raw,
    Result,
    Say,
    Script,
    Stall,
    Step,
    Think,
    Turn,
)

__all__ = [
    "Asked",
    "Call",
    "Cut",
    "End",
    "Fail",
    "Finish",
    "Garble",
    "Pause",
    "Raw",
    "Result",
    "Say",
    "Script",
    "ScriptedAnthropic",
    "ScriptedGemini",
    "ScriptedOpenAI",
    "Stall",
    "Step",
    "Think",
    "Turn",
]
