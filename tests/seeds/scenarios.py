"""Scenarios of the requirements, by test module and requirement."""

import re

SCENARIOS = {
    "model_adapter": {
        "Model adapter streams LLM responses": (
            "Non-streaming mode accumulates complete response",
            "Non-streaming mode accumulates tool calls",
            "Streaming mode yields partial events and complete final",
            "Provider error propagates correctly",
        ),
        "Risks": ("Provider emits no done event",),
        "SystemInstruction Forwarding": (
            "SystemInstruction present in request",
            "SystemInstruction absent",
            "Multi-part SystemInstruction",
        ),
        "convertMessages forwards FunctionCall ID": ("FunctionCall with original ID in convertMessages",),
    },
    "sessions": {
        "Ent State Adapter": ("Load Session", "Save Session"),
        "AppendEvent In-Memory History Sync": (
            "User message visible after AppendEvent",
            "Multiple events accumulate in memory",
            "State-delta-only events skip history",
        ),
        "AppendEvent preserves FunctionCall metadata": (
            "FunctionCall with original ID",
            "FunctionCall without ID",
        ),
        "AppendEvent stores FunctionResponse metadata": ("FunctionResponse with full metadata",),
        "ADK session management": ("Session history conversion", "Session history truncation"),
    },
    "history": {
        "History Management": (
            "History Truncation with explicit budget",
            "Default token budget",
            "Event Author Mapping",
            "Model role mapping",
            "Unknown role fallback",
        ),
        "EventsAdapter reconstructs FunctionCall with ID": ("Assistant message with FunctionCall ToolCalls",),
        "EventsAdapter reconstructs FunctionResponse from new format": (
            "Tool message with FunctionResponse metadata in ToolCalls",
        ),
        "EventsAdapter legacy FunctionResponse fallback": (
            "Legacy tool message without ToolCalls",
            "Tool message with no context for FunctionResponse",
        ),
        "Token budget truncation preserves sequence safety": (
            "Truncation cuts before tool message",
            "No truncation preserves trailing FunctionCall",
        ),
    },
    "runtime": {
        "Agent text collection avoids duplication": (
            "Streaming mode collects from partial events only",
            "Non-streaming mode collects from final event",
        ),
        "Agent hallucination retry in RunAndCollect": (
            "Hallucinated agent name triggers retry",
            "Retry succeeds",
            "Retry also fails",
            "Non-hallucination error is not retried",
            "No sub-agents means no retry",
        ),
        "Response streaming from ADK": ("Text response streaming", "Tool call in response", "Error handling"),
    },
    "tools": {
        "Tool Adapter": ("Execute Legacy Tool",),
        "Tool conversion to ADK format": ("Tool adapter creation", "Tool execution via ADK"),
    },
    "agent": {
        "ADK Agent Abstraction": ("Agent Initialization",),
        "Agent initialization with ADK": (
            "Successful agent initialization with Gemini",
            "Missing API credentials",
            "Invalid model name",
        ),
    },
}


def get_test_name(scenario: str) -> str:
    """Return the name of a scenario's test function.

    `AppendEvent` becomes `append_event`, `ID` becomes `id`.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", scenario)
    return "test_" + re.sub(r"\W+", "_", words).lower()
