"""Start of the agents: their models, ADK runners and session services."""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from google.adk.apps import App
from google.adk.plugins import BasePlugin

from bot.agents import AgentSet, find_unusable_tools, make_agents, make_model_registry, select_summary_model
from bot.settings import LOCAL_MODEL, Settings
from bot.simulator.process import INSPECTOR_VARIABLE
from core.agents.instructions import find_unknown_variables
from core.agents.loader import list_llm_agents
from core.agents.runtime import AgentRuntime, warm_up
from core.concurrency.retry import retry_store
from core.errors import SettingsError
from core.models.adapter import ModelAdapter
from core.models.tokens import TokenCounter
from core.sessions.agent_routing import AgentRouter
from core.sessions.artifacts import ArtifactService
from core.sessions.history_summary import Summarizer
from core.sessions.lifecycle import reassign_sessions
from core.sessions.memory import MemoryService
from core.sessions.service import SessionService
from core.signin.adk import SignInService
from core.store.database import Database
from core.tools.call_log import ToolCallLog
from core.usage.prices import Prices

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """Agents that are ready to run.

    Attributes:
        agents: selects the agent that answers in a channel.
        runtimes: by the agent's name.
        counter: exact if the tokenizer's vocabulary is downloaded, else an estimate.
    """

    agents: AgentRouter
    runtimes: Mapping[str, AgentRuntime]
    counter: TokenCounter
    summarizer: Summarizer


async def load_agents(
    settings: Settings, database: Database, prices: Prices, sign_ins: SignInService, stack: AsyncExitStack
) -> LoadedAgents:
    """Load the agents of the settings, and import all modules that a first run needs.

    Agents are imported on the event loop, like in `adk web`: their code may need the loop or the main thread. Stored
    sessions are reassigned to the default agent's app: see `reassign_sessions`. In the simulator, the inspector's
    WebSocket is connected too. `stack` closes the agents and their models.
    """
    page = os.environ.get(INSPECTOR_VARIABLE)
    registry = make_model_registry(settings, replaces_keyless=page is not None)
    stack.push_async_callback(registry.aclose)
    _check_prices(settings, prices, registry.handles)
    watching = list[BasePlugin]()
    if page is not None:
        from bot.simulator.inspector import connect_inspector  # noqa: PLC0415 - only in the simulator

        inspector = await stack.enter_async_context(connect_inspector(page, database, prices))
        watching.append(inspector)
    agent_set = make_agents(settings, registry, ToolCallLog(database), watching)
    if page is not None:
        models = [agent.canonical_model for app in agent_set.apps.values() for agent in list_llm_agents(app)]
        inspector.send_models(
            list(dict.fromkeys(model.model for model in models)),
            uses_default=any(isinstance(model, ModelAdapter) and not model.is_fixed for model in models),
            replaced=sorted(registry.replaced_models),
        )
    await retry_store(
        lambda: reassign_sessions(database, agent_set.agents), operation="reassigning the sessions of removed agents"
    )
    if LOCAL_MODEL in registry.handles:
        log.warning("%s is a tiny model for trying the bot: it is often wrong", LOCAL_MODEL)
    for app in agent_set.apps.values():
        for line in (*find_unusable_tools(app), *await find_unknown_variables(app)):
            log.warning("%s", line)
    counter = TokenCounter(settings.vocabulary_dir)
    runtimes = {
        name: _make_runtime(app, agent_set, database, counter, settings, sign_ins=sign_ins)
        for name, app in agent_set.apps.items()
    }
    for runtime in runtimes.values():
        stack.push_async_callback(runtime.aclose)
    await warm_up()
    return LoadedAgents(
        agent_set.agents, runtimes, counter, Summarizer(select_summary_model(settings, agent_set, registry), counter)
    )


def _make_runtime(
    app: App,
    agent_set: AgentSet,
    database: Database,
    counter: TokenCounter,
    settings: Settings,
    *,
    sign_ins: SignInService,
) -> AgentRuntime:
    root = app.root_agent.name if app.root_agent else ""
    sessions = SessionService(
        database,
        counter,
        budget=settings.history_max_tokens,
        agent=root,
        home_app=agent_set.agents.default,
    )
    return AgentRuntime(
        app,
        sessions,
        artifacts=ArtifactService(database),
        memory=MemoryService(database),
        progress_texts=agent_set.progress_texts.get(app.name, {}),
        sign_ins=sign_ins,
    )


def _check_prices(settings: Settings, prices: Prices, models: Iterable[str]) -> None:
    if settings.spending_limits and (unpriced := [model for model in models if prices.get_price(model) is None]):
        raise SettingsError(
            *(
                f"PRICES_FILE: {model} has no price, so no spending limit would hold for it: name a file that has "
                f'"{model}" = {{ input = ..., output = ... }}, in US dollars per million tokens'
                for model in unpriced
            )
        )
