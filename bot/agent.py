"""The agent that the settings ask for: one that is brought along, or the one that is built in."""

from dotenv import dotenv_values
from google.adk.apps import App
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from bot.settings import Settings
from core.agent import make_app, ours
from core.errors import SettingsError, ToolError
from core.journal import Journal
from core.layout import agents, load_app
from core.mcp import load_servers
from core.models.adapter import ModelAdapter
from core.models.choice import Choice
from core.models.registry import register
from core.tools import load_tools


def make_choice(settings: Settings) -> Choice:
    """The models. An agent that is brought may do without `MODEL`.

    Raises:
        SettingsError: one of them cannot be had.
    """
    return Choice(
        settings.model,
        settings.models,
        settings.endpoints,
        is_needed=not settings.agent,
        fallbacks=settings.model_fallbacks,
        idle_seconds=settings.model_idle_seconds,
    )


def make_agent(settings: Settings, choice: Choice, journal: Journal | None = None) -> App:
    """The app, ready to run.

    Raises:
        SettingsError: it cannot be had; names `AGENT`, `TOOLS` or `MCP_FILE`.
    """
    register(choice.adapter, default=choice.default)
    plugins = ours(journal, tool_seconds=settings.tool_seconds)
    if settings.agent:
        return load_app(settings.agent, plugins)
    try:
        tools: list[BaseTool | BaseToolset] = [*load_tools(settings.tools)]
    except ToolError as error:
        raise SettingsError(f"TOOLS: {error}") from error
    if settings.mcp_file.exists() or "mcp_file" in settings.model_fields_set:
        tools += load_servers(settings.mcp_file, dotenv_values(".env"))
    return make_app(settings.agent_config, model=choice.adapter(choice.default), tools=tools, plugins=plugins)


def models(app: App, choice: Choice) -> tuple[str, ...]:
    """The full names of the models that a conversation may be given, the one by default first. Where every agent has
    a model of its own, there is nothing to choose.
    """
    asked = [agent.canonical_model for agent in agents(app)]
    if any(isinstance(model, ModelAdapter) and not model.is_fixed for model in asked):
        return tuple(choice.offered)
    return (asked[0].model if asked else choice.default,)
