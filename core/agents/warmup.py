"""A run that nobody waits for, before there are those that somebody does."""

import importlib
import sys
from collections.abc import AsyncGenerator
from types import ModuleType
from typing import cast

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.sessions import InMemorySessionService
from google.genai import types

from core.agents.runtime import AgentRuntime


class _Mute(BaseLlm):
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


#: What ADK looks for at each run, for it is there only if some other package is. To find once more that it is not takes
#: a millisecond, in which two files are read and run.
_SOUGHT = "google.adk.agents.remote_a2a_agent"


async def warm_up() -> None:
    """Run an agent that says nothing once: ADK imports a second's worth of code at the first run of a process."""
    try:
        importlib.import_module(_SOUGHT)
    except ImportError:
        cast(dict[str, ModuleType | None], sys.modules)[_SOUGHT] = None  # Python: it is not there, without a look
    sessions = InMemorySessionService()
    runtime = AgentRuntime(App(name="warm_up", root_agent=LlmAgent(name="mute", model=_Mute(model="mute"))), sessions)
    await sessions.create_session(app_name="warm_up", user_id="nobody", session_id="none")
    await runtime.run_and_collect_once(user_id="nobody", session_id="none", text="hello")
    await runtime.aclose()
