"""A run that nobody waits for, before there are those that somebody does."""

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.sessions import InMemorySessionService
from google.genai import types

from core.agents.runtime import AgentRuntime


class _SilentModel(BaseLlm):
    """A model that says nothing of note, at once."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        content = types.Content(role="model", parts=[types.Part(text=".")])
        yield LlmResponse(
            content=content,
            partial=False,
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=0, candidates_token_count=0),
        )


async def warm_up() -> None:
    """Run an agent that says nothing once: ADK imports a second's worth of code at the first run of a process."""
    sessions = InMemorySessionService()
    runtime = AgentRuntime(
        App(name="warm_up", root_agent=LlmAgent(name="mute", model=_SilentModel(model="mute"))), sessions
    )
    await sessions.create_session(app_name="warm_up", user_id="nobody", session_id="none")
    await runtime.run_and_collect_once(user_id="nobody", session_id="none", text="hello")
    await runtime.aclose()
