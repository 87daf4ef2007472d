"""The models that may be chosen, and how a run comes to the one that was chosen for it."""

import logging
import re
from collections.abc import Mapping, Sequence

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.run_config import RunConfig
from google.adk.models import LlmRequest
from google.adk.plugins import BasePlugin
from pydantic import PrivateAttr

from core.errors import SettingsError
from core.identity import User
from core.models.adapter import IDLE_SECONDS, ModelAdapter
from core.models.coalescing import CoalescingProvider, DeltaSchedule
from core.models.provider import ModelHandle
from core.models.provider_registry import make_provider
from core.models.retries_and_fallbacks import RETRY_SECONDS, Fallbacks
from core.models.vendors import VendorSettings, lacks_key
from core.usage.meter import ToolTimer

log = logging.getLogger(__name__)

#: How the catalog begins to say what is wrong.
_SETTING_PREFIX = re.compile(r"^MODEL(=\S*)?: ")


class ModelRegistry:
    """The models that may be chosen, by their full names: those that `MODEL` takes.

    Args:
        default: the one that runs where none was chosen.
        others: what may be chosen besides.
        fallbacks: what answers, in this order, where one of them cannot.
        is_needed: whether the default must be there; if not, it is offered only if nothing is missing for it.
        replaces_keyless: whether the default answers for a model that an agent names and that has no key.
        idle_seconds: for how long a model may say nothing.

    Raises:
        SettingsError: one of them there is not, or something is missing for it; `MODELS` or `MODEL_FALLBACKS` is named
            if it is another one than the default.

    Attributes:
        offered: them all, the default first.
        fallbacks: those that take another's place.
        asked: all of them, and those that an agent asks by name.
        replaced: models without a key, for which the default answers.
    """

    def __init__(
        self,
        default: str,
        others: Sequence[str],
        endpoints: VendorSettings,
        *,
        fallbacks: Sequence[str] = (),
        is_needed: bool = True,
        replaces_keyless: bool = False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.default = default
        self.handles = dict[str, ModelHandle]()
        self.replaced_models = set[str]()
        self._replaces_keyless = replaces_keyless
        self._endpoints = endpoints
        self._idle_seconds = idle_seconds
        self._schedule = DeltaSchedule()
        faults = list[str]()
        try:
            self._load(default)
        except SettingsError as error:
            if is_needed:
                faults += error.faults
        faults += self._load_all(others, "MODELS")
        self.selectable: Mapping[str, ModelHandle] = dict(self.handles)
        faults += self._load_all(fallbacks, "MODEL_FALLBACKS")
        if faults:
            raise SettingsError(*faults)
        self.fallbacks = Fallbacks({name: self.handles[name] for name in fallbacks})

    def make_adapter(self, name: str) -> ModelAdapter:
        """Return a model as ADK asks it. Another one may be chosen in place of the default only.

        Raises:
            SettingsError: there is no such model, or something is missing for it.
        """
        if self._replaces_keyless and self.default in self.handles and lacks_key(name, self._endpoints):
            self.replaced_models.add(name)
            name = self.default
        asked = self._load(name)
        return ModelAdapter(
            model=name,
            provider=asked.provider,
            selectable=self.selectable if name in self.selectable else {name: asked},
            fallbacks=self.fallbacks if name == self.default else Fallbacks(),
            is_fixed=name != self.default,
            idle_seconds=self._idle_seconds,
            retry_seconds=RETRY_SECONDS,
        )

    def _load_all(self, names: Sequence[str], setting: str) -> list[str]:
        """Make these models, and return a line for each that cannot be had."""
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
            provider, model = make_provider(name, self._endpoints)
            self.handles[name] = ModelHandle(CoalescingProvider(provider, self._schedule), model)
        return self.handles[name]

    async def aclose(self) -> None:
        """Give back the connections of all of them."""
        for provider, _ in self.handles.values():
            await provider.aclose()


class AgentRunConfig(RunConfig):
    """How a run is to be made, with the model that was chosen for it.

    Attributes:
        model: its full name; none for the default.
        speaker: for whom it is made.
        bot_name: the bot's name on the platform; empty if it is not known.
    """

    model: str | None = None
    speaker: User | None = None
    bot_name: str = ""
    _tool_timer: ToolTimer = PrivateAttr(default_factory=ToolTimer)
    _call_ids: set[str] = PrivateAttr(default_factory=set)

    @property
    def tool_timer(self) -> ToolTimer:
        """Takes the time of the calls of tools."""
        return self._tool_timer

    @property
    def call_ids(self) -> set[str]:
        """Ids of the run's tool calls so far, of all agents and branches."""
        return self._call_ids


class ModelSelectionPlugin(BasePlugin):
    """Has the agents of a run that would ask the default model ask the one that was chosen for it. One that is not
    offered any more is passed over.
    """

    def __init__(self) -> None:
        super().__init__(name="parley_choice")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        run, agent = callback_context.run_config, callback_context._invocation_context.agent
        if not isinstance(run, AgentRunConfig) or run.model is None or not isinstance(agent, LlmAgent):
            return
        adapter = agent.canonical_model
        if not isinstance(adapter, ModelAdapter) or adapter.is_fixed:
            return
        llm_request.model = adapter.resolve_name(run.model)
        if llm_request.model != run.model:
            log.warning("%s is not among MODELS any more: %s answers", run.model, adapter.model)
