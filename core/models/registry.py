"""Our models in ADK's registry: an agent that names its model by a word gets it as all others get theirs."""

from collections.abc import Callable

from google.adk.agents import LlmAgent
from google.adk.models import LLMRegistry

from core.models.adapter import ModelAdapter

#: What `core.models.catalog` has providers for.
PATTERNS = [r"gemini-.*", r"openai/.*", r"anthropic/.*", r"local/.*"]


def register(adapter: Callable[[str], ModelAdapter], *, default: str) -> None:
    """Have ADK ask `adapter` for each model that an agent names, from now on, and for `default` where it names none.

    There is one registry in a process; the newest word holds.
    """

    class Named(ModelAdapter):
        """What `adapter` has made, as an object of a class: ADK registers classes."""

        def __init__(self, *, model: str) -> None:
            made = adapter(model)
            super().__init__(**{name: getattr(made, name) for name in ModelAdapter.model_fields})

        @classmethod
        def supported_models(cls) -> list[str]:
            return PATTERNS

    LLMRegistry.register(Named)
    LlmAgent.set_default_model(default)
    LlmAgent.set_default_live_model(default)  # ADK looks at that one too when nothing is live
