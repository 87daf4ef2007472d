"""Models that conversations can select, and the plugin that selects one for a run."""

import logging
import re
from collections.abc import Mapping, Sequence

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.run_config import RunConfig
from google.adk.models import LlmRequest
from google.adk.plugins import BasePlugin
from google.genai import types
from pydantic import Field

from core.errors import SettingsError
from core.messages.identity import User
from core.models.adapter import IDLE_SECONDS, ModelAdapter
from core.models.provider import ModelHandle
from core.models.provider_registry import make_provider
from core.models.providers.coalescing import DeltaSchedule
from core.models.retries_and_fallbacks import RETRY_DELAYS_SECONDS, Fallbacks
from core.models.vendors import VendorSettings, lacks_key
from core.usage.meter import ToolTimer

log = logging.getLogger(__name__)

#: Beginning of a message of `make_provider`: the name and value of the setting.
_SETTING_PREFIX = re.compile(r"^MODEL(=\S*)?: ")


class ModelRegistry:
    """Registry of the models in the settings, by full names such as `openai/NAME`.

    Args:
        is_required: whether a default model that cannot be used is an error. If not, it is neither selectable nor a
            fallback.
        replaces_keyless: whether the default model, if it can be used, replaces an agent's model that has no key.
        thinking_starts_open: whether the text of each model begins in thinking that only a closing mark ends.

    Raises:
        SettingsError: a model is unknown or lacks a setting.

    Attributes:
        selectable: models that a conversation can select, the default first if it can be used.
        handles: all models by full name, including those that agents name.
        replaced_models: full names of the models without a key that the default replaces.
    """

    def __init__(
        self,
        default: str,
        others: Sequence[str],
        endpoints: VendorSettings,
        *,
        fallbacks: Sequence[str] = (),
        is_required: bool = True,
        replaces_keyless: bool = False,
        idle_seconds: float = IDLE_SECONDS,
        thinking_starts_open: bool = False,
    ) -> None:
        self.default = default
        self.handles = dict[str, ModelHandle]()
        self.replaced_models = set[str]()
        self._replaces_keyless = replaces_keyless
        self._endpoints = endpoints
        self._idle_seconds = idle_seconds
        self._thinking_starts_open = thinking_starts_open
        self._open_thinkers = set[str]()
        self._schedule = DeltaSchedule()
        faults = list[str]()
        try:
            self._load(default)
        except SettingsError as error:
            if is_required:
                faults += error.faults
        faults += self._load_all(others, "MODELS")
        self.selectable: Mapping[str, ModelHandle] = dict(self.handles)
        faults += self._load_all(fallbacks, "MODEL_FALLBACKS")
        if faults:
            raise SettingsError(*faults)
        self.fallbacks = Fallbacks({name: self.handles[name] for name in fallbacks if name in self.handles})

    def make_adapter(self, name: str) -> ModelAdapter:
        """Return the ADK model for the default model, or for one that an agent names.

        A conversation's selection replaces only the default model.

        Raises:
            SettingsError: the model is unknown or lacks a setting.
        """
        if self._replaces_keyless and self.default in self.handles and lacks_key(name, self._endpoints):
            self.replaced_models.add(name)
            name = self.default
        handle = self._load(name)
        return ModelAdapter(
            model=name,
            provider=handle.provider,
            selectable=self.selectable if name in self.selectable else {name: handle},
            fallbacks=self.fallbacks if name == self.default else Fallbacks(),
            is_fixed=name != self.default,
            idle_seconds=self._idle_seconds,
            retry_delays=RETRY_DELAYS_SECONDS,
            schedule=self._schedule,
            open_thinkers=self._open_thinkers,
        )

    def _load_all(self, names: Sequence[str], setting: str) -> list[str]:
        """Load models; return a message for each wrong one but the default, whose faults the constructor has."""
        faults = list[str]()
        for name in names:
            try:
                self._load(name)
            except SettingsError as error:
                if name != self.default:
                    faults += (f"{setting}={name}: {_SETTING_PREFIX.sub('', fault)}" for fault in error.faults)
        return faults

    def _load(self, name: str) -> ModelHandle:
        if name not in self.handles:
            self.handles[name] = ModelHandle(*make_provider(name, self._endpoints))
            if self._thinking_starts_open:
                self._open_thinkers.add(name)
        return self.handles[name]

    async def aclose(self) -> None:
        for provider, _ in self.handles.values():
            await provider.aclose()


class AgentRunConfig(RunConfig):
    """ADK's run configuration, with the selected model and the user of the run.

    Attributes:
        speakers: the people for whom the agent runs; empty if unknown.
        call_ids, file_names: those of the run so far, of all agents and branches.
        model_configs: the configuration of the newest model request of each agent, by the agent's name.
    """

    model: str | None = None
    speakers: tuple[User, ...] = ()
    bot_name: str = ""
    tool_timer: ToolTimer = Field(default_factory=ToolTimer)
    call_ids: set[str] = Field(default_factory=set)
    file_names: list[str] = Field(default_factory=list)
    model_configs: dict[str, types.GenerateContentConfig] = Field(default_factory=dict)


class ModelSelectionPlugin(BasePlugin):
    """ADK plugin that replaces the agents' default model by the selected one, if the settings still list it."""

    def __init__(self) -> None:
        super().__init__(name="parley_choice")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        run = callback_context.run_config
        agent = callback_context._invocation_context.agent
        if not isinstance(run, AgentRunConfig) or run.model is None or not isinstance(agent, LlmAgent):
            return
        adapter = agent.canonical_model
        if not isinstance(adapter, ModelAdapter) or adapter.is_fixed:
            return
        llm_request.model = adapter.resolve_name(run.model)
        if llm_request.model != run.model:
            log.warning("the model %s is no longer in MODELS; %s answers", run.model, adapter.model)
