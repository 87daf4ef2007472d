"""The models that may be chosen, and how a run comes to the one that was chosen for it."""

import logging
import re
from collections.abc import Mapping, Sequence

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.run_config import RunConfig
from google.adk.models import LlmRequest
from google.adk.plugins import BasePlugin

from core.errors import SettingsError
from core.models.adapter import ModelAdapter, Offered
from core.models.catalog import Endpoints, make_provider
from core.models.merging import Merging, Slots

log = logging.getLogger(__name__)

#: How the catalog begins to say what is wrong.
_MODEL = re.compile(r"^MODEL(=\S*)?: ")


class Choice:
    """The models that may be chosen, by their full names: those that `MODEL` takes.

    Args:
        default: the one that runs where none was chosen.
        others: what may be chosen besides.

    Raises:
        SettingsError: one of them there is not, or something is missing for it; `MODELS` is named if it is another one
            than the default.

    Attributes:
        offered: them all, the default first.
    """

    def __init__(self, default: str, others: Sequence[str], endpoints: Endpoints) -> None:
        slots = Slots()
        offered = dict[str, Offered]()
        for name in dict.fromkeys((default, *others)):
            try:
                provider, model = make_provider(name, endpoints)
            except SettingsError as error:
                if name == default:
                    raise
                raise SettingsError(*(f"MODELS={name}: {_MODEL.sub('', fault)}" for fault in error.faults)) from None
            offered[name] = Offered(Merging(provider, slots), model)
        self.default = default
        self.offered: Mapping[str, Offered] = offered

    async def aclose(self) -> None:
        """Give back the connections of all of them."""
        for provider, _ in self.offered.values():
            await provider.aclose()


class ChosenRun(RunConfig):
    """How a run is to be made, with the model that was chosen for it.

    Attributes:
        model: its full name; none for the default.
    """

    model: str | None = None


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
        if not isinstance(adapter, ModelAdapter):
            return
        if run.model in adapter.offered:
            llm_request.model = run.model
        else:
            log.warning("%s is not among MODELS any more: %s answers", run.model, adapter.model)
