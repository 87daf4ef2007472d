"""Builds the ADK apps of the agents that the settings or `agents.toml` configure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dotenv import dotenv_values
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from bot.agents_toml import AgentTable, read_agents
from bot.settings import Settings
from bot.settings.parsing import read_utf8
from core.agents.config import AgentConfig
from core.agents.factory import create_app, create_plugins
from core.agents.loader import list_llm_agents as agents_in
from core.agents.loader import load_app
from core.errors import SettingsError, ToolError
from core.models.adapter import ModelAdapter, register_adapter
from core.models.selection import ModelRegistry
from core.models.vendors import can_call_tools
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.history_summary import SummaryModelFactory
from core.signin.toolset import wrap_server
from core.tools.call_log import ToolCallLog
from core.tools.mcp import load_servers
from core.tools.tool import load_tools


@dataclass(frozen=True, slots=True)
class AgentSet:
    """The agents of a bot.

    Attributes:
        agents: selects the agent that answers in a channel.
        apps: ADK apps by agent name, the default agent first.
        progress_texts: texts that users see while a tool runs, by agent name and then by tool name.
    """

    agents: AgentRouter
    apps: Mapping[str, App]
    progress_texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def make_model_registry(settings: Settings, *, replaces_keyless: bool = False) -> ModelRegistry:
    """Return the registry of the models that the settings configure.

    Without the built-in agent, `MODEL` need not be usable: users' own agents name their models.

    Args:
        replaces_keyless: whether `MODEL` answers instead of an agent's model that has no API key.

    Raises:
        SettingsError: it has a line for each model that cannot be used, and for each such tool of the built-in agent.
    """
    is_needed = not settings.agent and settings.agents_path is None
    try:
        return ModelRegistry(
            settings.model,
            settings.models,
            settings.endpoints,
            is_required=is_needed,
            replaces_keyless=replaces_keyless,
            fallbacks=settings.model_fallbacks,
            idle_seconds=settings.model_idle_timeout_seconds,
            thinking_starts_open=settings.thinking_starts_open,
        )
    except SettingsError as error:  # without a model the agent is not built: its tools are checked here
        raise SettingsError(*error.faults, *(_find_tool_faults(settings) if is_needed else ())) from error


def make_agents(
    settings: Settings,
    registry: ModelRegistry,
    call_log: ToolCallLog | None = None,
    observers: Sequence[BasePlugin] = (),
) -> AgentSet:
    """Build the agents of the settings, and register their models with ADK.

    Args:
        call_log: stored log of tool calls, so that a resumed turn repeats no call.
        observers: ADK plugins that see every run and change nothing.

    Raises:
        SettingsError: has a line for each fault, which names the setting or the agent in `agents.toml`.
    """
    register_adapter(registry.make_adapter, default=registry.default)
    own = create_plugins(call_log, tool_seconds=settings.tool_timeout_seconds, approvers=settings.approvers)
    plugins = [*own, *observers]
    if settings.agents_path is not None:
        return _make_agents_of_file(settings, settings.agents_path, registry, plugins)
    if settings.agent:
        app = load_app(settings.agent, plugins)
    else:
        app = _make_built_in_app(settings, AgentTable(), settings.agent_config, registry, plugins)
    return AgentSet(
        AgentRouter(app.name, {app.name: AgentProfile(app.name, list_selectable_models(app, registry))}),
        {app.name: app},
    )


def _make_agents_of_file(
    settings: Settings, file: Path, registry: ModelRegistry, plugins: Sequence[BasePlugin]
) -> AgentSet:
    config = read_agents(file)
    apps = dict[str, App]()
    faults = list[str]()
    for name in dict.fromkeys((config.default, *config.agents)):
        table = config.agents[name]
        try:
            if table.agent:
                # its sessions are stored under the name in the file, which users see
                apps[name] = load_app(table.agent, plugins).model_copy(update={"name": name})
            else:
                apps[name] = _make_built_in_app(settings, table, _make_config(settings, name, table), registry, plugins)
        except SettingsError as error:
            faults += [f"{file}: [agents.{name}] {fault.replace('AGENT=', 'agent=', 1)}" for fault in error.faults]
    if faults:
        raise SettingsError(*faults)
    known = {
        name: AgentProfile(
            name,
            list_selectable_models(app, registry),
            config.agents[name].description,
            config.agents[name].selectable_places,
        )
        for name, app in apps.items()
    }
    lines = {name: table.progress for name, table in config.agents.items()}
    return AgentSet(AgentRouter(config.default, known, config.places), apps, lines)


def _find_tool_faults(settings: Settings) -> list[str]:
    try:
        load_tools(settings.tools)
    except ToolError as error:
        return [f"TOOLS: {fault}" for fault in str(error).splitlines()]
    return []


def _make_config(settings: Settings, name: str, table: AgentTable) -> AgentConfig:
    instruction = read_utf8(table.instruction_file) if table.instruction_file else table.instruction
    config = settings.agent_config
    return AgentConfig(name, instruction or config.instruction, table.description or config.description)


def _make_built_in_app(
    settings: Settings, table: AgentTable, config: AgentConfig, registry: ModelRegistry, plugins: Sequence[BasePlugin]
) -> App:
    try:
        tools: list[BaseTool | BaseToolset] = [*load_tools(settings.tools if table.tools is None else table.tools)]
    except ToolError as error:
        setting = "TOOLS" if table.tools is None else "tools"
        raise SettingsError(*(f"{setting}: {fault}" for fault in str(error).splitlines())) from error
    file = settings.mcp_file if table.mcp is None else table.mcp
    is_asked_for = table.mcp is not None or "mcp_file" in settings.model_fields_set
    if file.name and (is_asked_for or file.exists()):
        tools += _load_servers(settings, file)
    return create_app(
        config, model=registry.make_adapter(table.model or registry.default), tools=tools, plugins=plugins
    )


def _load_servers(settings: Settings, file: Path) -> list[BaseToolset]:
    """Return the toolsets of MCP servers, some of which people use with their own accounts."""
    servers = load_servers(file, dotenv_values(".env"))
    personal = [server.name for server in servers if server.config.is_personal]
    if personal and (missing := settings.describe_missing_sign_in()):
        raise SettingsError(
            *(f"MCP_FILE={file}: [{name}] people sign in at this server: set {missing}" for name in personal)
        )
    return [wrap_server(server) if server.config.is_personal else server for server in servers]


def select_summary_model(settings: Settings, agent_set: AgentSet, registry: ModelRegistry) -> SummaryModelFactory:
    """Return the function that selects the model of a session's summary.

    It selects `SUMMARY_MODEL` if that is set. Otherwise it selects the agent's own model. For an agent without one, it
    selects the model that the session's users chose, if it is in `MODELS`, or the default.
    """
    if settings.summary_model:
        try:
            adapter = registry.make_adapter(settings.summary_model)
        except SettingsError as error:
            raise SettingsError(*(f"SUMMARY_MODEL: {fault}" for fault in error.faults)) from None
        return lambda _agent, _chosen: (adapter, settings.summary_model)

    def model(agent: str, chosen: str | None) -> tuple[BaseLlm, str]:
        app = agent_set.apps.get(agent) or agent_set.apps[agent_set.agents.default]
        model = next((agent.canonical_model for agent in agents_in(app)), None) or registry.make_adapter(
            registry.default
        )
        is_offered = isinstance(model, ModelAdapter) and not model.is_fixed and chosen in model.selectable
        return model, chosen if chosen is not None and is_offered else model.model

    return model


def find_unusable_tools(app: App) -> list[str]:
    """Return a warning for each agent of an app that has tools its model cannot call."""
    lines = list[str]()
    for agent in agents_in(app):
        names = [getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in agent.tools]
        model = agent.canonical_model.model
        if names and not can_call_tools(model):
            tools = ", ".join(filter(None, names))
            lines.append(f"{model} cannot call tools: {agent.name} never uses {tools}; set MODEL to one that can")
    return lines


def list_selectable_models(app: App, registry: ModelRegistry) -> tuple[str, ...]:
    """Return the full names of the models that users may choose, the default first.

    If each agent of the app has a fixed model, the only name is that of the first agent's model. Without any agent
    that calls a model, the only name is that of the default model.
    """
    models = [agent.canonical_model for agent in agents_in(app)]
    if any(isinstance(model, ModelAdapter) and not model.is_fixed for model in models):
        return tuple(registry.selectable)
    return (models[0].model if models else registry.default,)
