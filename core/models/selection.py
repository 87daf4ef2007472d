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
from core.models.provider import Offered
from core.models.provider_registry import make_provider
from core.models.retries_and_fallbacks import RETRY_SECONDS, Fallbacks
from core.models.vendors import Endpoints, lacks_key
from core.usage.meter import Stopwatch

log = logging.getLogger(__name__)

#: How the catalog begins to say what is wrong.
_MODEL = re.compile(r"^MODEL(=\S*)?: ")


class Choice:
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
        endpoints: Endpoints,
        *,
        fallbacks: Sequence[str] = (),
        is_needed: bool = True,
        replaces_keyless: bool = False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.default = default
        self.asked = dict[str, Offered]()
        self.replaced = set[str]()
        self._replaces_keyless = replaces_keyless
        self._endpoints = endpoints
        self._idle_seconds = idle_seconds
        self._schedule = DeltaSchedule()
        faults = list[str]()
        try:
            self._ask(default)
        except SettingsError as error:
            if is_needed:
                faults += error.faults
        faults += self._ask_all(others, "MODELS")
        self.offered: Mapping[str, Offered] = dict(self.asked)
        faults += self._ask_all(fallbacks, "MODEL_FALLBACKS")
        if faults:
            raise SettingsError(*faults)
        self.fallbacks = Fallbacks({name: self.asked[name] for name in fallbacks})

    def adapter(self, name: str) -> ModelAdapter:
        """Return a model as ADK asks it. Another one may be chosen in place of the default only.

        Raises:
            SettingsError: there is no such model, or something is missing for it.
        """
        if self._replaces_keyless and self.default in self.asked and lacks_key(name, self._endpoints):
            self.replaced.add(name)
            name = self.default
        asked = self._ask(name)
        return ModelAdapter(
            model=name,
            provider=asked.provider,
            offered=self.offered if name in self.offered else {name: asked},
            fallbacks=self.fallbacks if name == self.default else Fallbacks(),
            is_fixed=name != self.default,
            idle_seconds=self._idle_seconds,
            waits=RETRY_SECONDS,
        )

    def _ask_all(self, names: Sequence[str], setting: str) -> list[str]:
        """Make these models, and return a line for each that cannot be had."""
        faults = list[str]()
        for name in names:
            try:
                self._ask(name)
            except SettingsError as error:
                if name != self.default:
                    faults += (f"{setting}={name}: {_MODEL.sub('', fault)}" for fault in error.faults)
        return faults

    def _ask(self, name: str) -> Offered:
        if name not in self.asked:
            provider, model = make_provider(name, self._endpoints)
            self.asked[name] = Offered(CoalescingProvider(provider, self._schedule), model)
        return self.asked[name]

    async def aclose(self) -> None:
        """Give back the connections of all of them."""
        for provider, _ in self.asked.values():
            await provider.aclose()


class ChosenRun(RunConfig):
    """How a run is to be made, with the model that was chosen for it.

    Attributes:
        model: its full name; none for the default.
        speaker: for whom it is made.
        bot_name: the bot's name on the platform; empty if it is not known.
    """

    model: str | None = None
    speaker: User | None = None
    bot_name: str = ""
    _stopwatch: Stopwatch = PrivateAttr(default_factory=Stopwatch)
    _call_ids: set[str] = PrivateAttr(default_factory=set)

    @property
    def stopwatch(self) -> Stopwatch:
        """Takes the time of the calls of tools."""
        return self._stopwatch

    @property
    def call_ids(self) -> set[str]:
        """Ids of the run's tool calls so far, of all agents and branches."""
        return self._call_ids


class ChoicePlugin(BasePlugin):
    """Has the agents of a run that would ask the default model ask the one that was chosen for it. One that is not
    offered any more is passed over.
    """

    def __init__(self) -> None:
        super().__init__(name="parley_choice")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        run, agent = callback_context.run_config, callback_context._invocation_context.agent
        if not isinstance(run, ChosenRun) or run.model is None or not isinstance(agent, LlmAgent):
            return
        adapter = agent.canonical_model
        if not isinstance(adapter, ModelAdapter) or adapter.is_fixed:
            return
        llm_request.model = adapter.named(run.model)
        if llm_request.model != run.model:
            log.warning("%s is not among MODELS any more: %s answers", run.model, adapter.model)
