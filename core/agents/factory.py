"""ADK app of the built-in agent, and the plugins that every ADK app gets."""

from collections.abc import Sequence

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from core.agents.config import (
    AGENT_NAME_PATTERN,
    AGENT_NAME_RULE,
    BOT_NAME_PLACEHOLDER,
    TOOL_TIMEOUT_SECONDS,
    AgentConfig,
)
from core.agents.media import MediaPlugin
from core.agents.plugins import GuardPlugin, MeterPlugin, WorkflowAnswerPlugin
from core.errors import SettingsError
from core.messages.identity import AUTHOR
from core.models.selection import AgentRunConfig, ModelSelectionPlugin
from core.tools.call_log import ToolCallLog


def create_app(
    config: AgentConfig,
    *,
    model: BaseLlm,
    tools: Sequence[BaseTool | BaseToolset] = (),
    plugins: Sequence[BasePlugin] | None = None,
) -> App:
    """Return an ADK app with one agent; `plugins` replace those of `create_plugins()`.

    Raises:
        SettingsError: the agent's name is not valid in ADK. The message names the setting `AGENT_NAME`.
    """
    if AGENT_NAME_PATTERN.fullmatch(config.name) is None:
        raise SettingsError(f"AGENT_NAME={config.name}: {AGENT_NAME_RULE}")

    def instruction(context: ReadonlyContext) -> str:  # ADK fills in the {braces} of a plain text
        run = context.run_config
        name = run.bot_name if isinstance(run, AgentRunConfig) else ""
        return config.instruction.replace(BOT_NAME_PLACEHOLDER, name or config.name)

    agent = LlmAgent(
        name=config.name, description=config.description, model=model, instruction=instruction, tools=list(tools)
    )
    return App(name=config.name, root_agent=agent, plugins=list(create_plugins() if plugins is None else plugins))


def create_plugins(
    call_log: ToolCallLog | None = None,
    *,
    tool_seconds: float = TOOL_TIMEOUT_SECONDS,
    approvers: Sequence[str] = (AUTHOR,),
) -> list[BasePlugin]:
    """Return new instances of the ADK plugins that every app gets; they must come before the app's own plugins.

    A resumed run makes no call twice if there is a `call_log`. `tool_seconds` and `approvers` are for tools that set
    none themselves.
    """
    guard = GuardPlugin(call_log, tool_seconds=tool_seconds, approvers=approvers)
    return [guard, ModelSelectionPlugin(), MeterPlugin(), WorkflowAnswerPlugin(), MediaPlugin()]
