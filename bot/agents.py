"""The agents that the settings ask for: brought along, or built in; one, or the several of `agents.toml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dotenv import dotenv_values
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from bot.agents_file import Table, read_agents
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
from core.sessions.routing import AgentProfile, AgentRouter
from core.sessions.summarizer import SummaryModelFactory
from core.tools.call_log import ToolCallLog
from core.tools.mcp import load_servers
from core.tools.tool import load_tools


@dataclass(frozen=True, slots=True)
class Crew:
    """The agents of a bot.

    Attributes:
        apps: what runs them, by their names, the default's first.
        lines: by their names, what the file says is shown while their tools run.
    """

    agents: AgentRouter
    apps: Mapping[str, App]
    lines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def make_choice(settings: Settings, *, replaces_keyless: bool = False) -> ModelRegistry:
    """Make the models. Agents of the user's own may do without `MODEL`.

    Args:
        replaces_keyless: whether `MODEL` answers for a model that an agent names and that has no key.

    Raises:
        SettingsError: a line for each that cannot be had, and for each tool that cannot.
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
        )
    except SettingsError as error:  # the agent, which needs a model, is not made: its tools are tried here
        raise SettingsError(*error.faults, *(_tool_faults(settings) if is_needed else ())) from error


def make_crew(
    settings: Settings, choice: ModelRegistry, journal: ToolCallLog | None = None, watching: Sequence[BasePlugin] = ()
) -> Crew:
    """The apps, ready to run.

    Args:
        watching: what sees all that happens in a run, and changes nothing.

    Raises:
        SettingsError: one cannot be had; a line for each fault, that names `AGENT`, `TOOLS` or `MCP_FILE`, or the file
            of several agents and the agent in it.
    """
    register_adapter(choice.make_adapter, default=choice.default)
    plugins = [*create_plugins(journal, tool_seconds=settings.tool_timeout_seconds), *watching]
    if settings.agents_path is not None:
        return _several(settings, settings.agents_path, choice, plugins)
    if settings.agent:
        app = load_app(settings.agent, plugins)
    else:
        app = _built_in(settings, Table(), settings.agent_config, choice, plugins)
    return Crew(AgentRouter(app.name, {app.name: AgentProfile(app.name, models(app, choice))}), {app.name: app})


def _several(settings: Settings, file: Path, choice: ModelRegistry, plugins: Sequence[BasePlugin]) -> Crew:
    said = read_agents(file)
    apps, faults = dict[str, App](), list[str]()
    for name in dict.fromkeys((said.default, *said.agents)):
        table = said.agents[name]
        try:
            if table.agent:
                # the name by which people know it is the one under which it keeps what it knows
                apps[name] = load_app(table.agent, plugins).model_copy(update={"name": name})
            else:
                apps[name] = _built_in(settings, table, _config(settings, name, table), choice, plugins)
        except SettingsError as error:
            faults += [f"{file}: [agents.{name}] {fault.replace('AGENT=', 'agent=', 1)}" for fault in error.faults]
    if faults:
        raise SettingsError(*faults)
    known = {
        name: AgentProfile(name, models(app, choice), said.agents[name].description, said.agents[name].chosen_at)
        for name, app in apps.items()
    }
    lines = {name: table.progress for name, table in said.agents.items()}
    return Crew(AgentRouter(said.default, known, said.places), apps, lines)


def _tool_faults(settings: Settings) -> list[str]:
    try:
        load_tools(settings.tools)
    except ToolError as error:
        return [f"TOOLS: {fault}" for fault in str(error).splitlines()]
    return []


def _config(settings: Settings, name: str, table: Table) -> AgentConfig:
    instruction = read_utf8(table.instruction_file) if table.instruction_file else table.instruction
    config = settings.agent_config
    return AgentConfig(name, instruction or config.instruction, table.description or config.description)


def _built_in(
    settings: Settings, table: Table, config: AgentConfig, choice: ModelRegistry, plugins: Sequence[BasePlugin]
) -> App:
    try:
        tools: list[BaseTool | BaseToolset] = [*load_tools(settings.tools if table.tools is None else table.tools)]
    except ToolError as error:
        setting = "TOOLS" if table.tools is None else "tools"
        raise SettingsError(*(f"{setting}: {fault}" for fault in str(error).splitlines())) from error
    file = settings.mcp_file if table.mcp is None else table.mcp
    is_asked_for = table.mcp is not None or "mcp_file" in settings.model_fields_set
    if file.name and (file.exists() or is_asked_for):
        tools += load_servers(file, dotenv_values(".env"))
    return create_app(config, model=choice.make_adapter(table.model or choice.default), tools=tools, plugins=plugins)


def summing(settings: Settings, crew: Crew, choice: ModelRegistry) -> SummaryModelFactory:
    """What gives the model that sums up a conversation: `SUMMARY_MODEL`, or the one that answers there; where an agent
    asks none, the default.

    Raises:
        SettingsError: there is no such model.
    """
    if settings.summary_model:
        try:
            own = choice.make_adapter(settings.summary_model)
        except SettingsError as error:
            raise SettingsError(*(f"SUMMARY_MODEL: {fault}" for fault in error.faults)) from None
        return lambda _agent, _chosen: (own, settings.summary_model)

    def model(agent: str, chosen: str | None) -> tuple[BaseLlm, str]:
        app = crew.apps.get(agent) or crew.apps[crew.agents.default]
        asked = next((each.canonical_model for each in agents_in(app)), None) or choice.make_adapter(choice.default)
        is_offered = isinstance(asked, ModelAdapter) and not asked.is_fixed and chosen in asked.selectable
        return asked, chosen if chosen is not None and is_offered else asked.model

    return model


def find_unusable_tools(app: App) -> list[str]:
    """Return a line for each agent of an app that has tools and a model that cannot call them."""
    lines = list[str]()
    for agent in agents_in(app):
        names = [getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in agent.tools]
        model = agent.canonical_model.model
        if names and not can_call_tools(model):
            told = ", ".join(filter(None, names))
            lines.append(f"{model} cannot call tools: {agent.name} never uses {told}; set MODEL to one that can")
    return lines


def models(app: App, choice: ModelRegistry) -> tuple[str, ...]:
    """The full names of the models that a conversation may be given, the one by default first. Where every agent has
    a model of its own, there is nothing to choose.
    """
    asked = [agent.canonical_model for agent in agents_in(app)]
    if any(isinstance(model, ModelAdapter) and not model.is_fixed for model in asked):
        return tuple(choice.selectable)
    return (asked[0].model if asked else choice.default,)
