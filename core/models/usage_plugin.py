"""Models that an agent brings along: what ADK tells of their calls is counted as well.

Those that are a `ModelAdapter` count their own calls, each attempt of it.
"""

import time
from functools import partial
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins import BasePlugin

from core.models.adapter import ModelAdapter
from core.usage.meter import ModelCall, current


class MeterPlugin(BasePlugin):
    """Counts the calls of models that are none of ours, and has the run's meter asked before each."""

    def __init__(self) -> None:
        super().__init__(name="parley_meter")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        if (model := _brought(callback_context)) is not None:
            await current().ask(llm_request.model or model.model, partial(_tokens, llm_request))
            current().begun[_whose(callback_context)] = time.monotonic()

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        if (model := _brought(callback_context)) is not None and not llm_response.partial:
            current().heard(llm_response, model.model, _seconds(callback_context))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        if (model := _brought(callback_context)) is not None:
            name, seconds = llm_request.model or model.model, round(_seconds(callback_context), 3)
            current().add(ModelCall(name, seconds=seconds, error=type(error).__name__))


def _brought(context: CallbackContext) -> BaseLlm | None:
    """The model of the agent, if it is none of ours."""
    agent = context._invocation_context.agent
    model = agent.canonical_model if isinstance(agent, LlmAgent) else None
    return None if isinstance(model, ModelAdapter) else model


def _whose(context: CallbackContext) -> Any:
    return context.invocation_id, context.agent_name, context._invocation_context.branch


def _seconds(context: CallbackContext) -> float:
    """Since the call began, or since what it said last of which tokens were told."""
    now, begun = time.monotonic(), current().begun
    since = now - begun.get(_whose(context), now)
    begun[_whose(context)] = now
    return since


def _tokens(request: LlmRequest) -> int:
    """About how many a request has: four letters are one, more or less."""
    return sum(len(part.text or "") for content in request.contents for part in content.parts or ()) // 4
