"""The agent, made from configuration."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from core.errors import SettingsError
from core.journal import Journal
from core.models.brought import MeterPlugin
from core.models.choice import ChoicePlugin
from core.plugins import GuardPlugin
from core.tools import TOOL_SECONDS

#: ADK re-sends what was stored under another name as somebody else's words, so a name is for life.
DEFAULT_NAME = "lango_agent"

#: ADK: an app's name begins with a letter, an agent's is an identifier, and `user` is the user's.
NAME = re.compile(r"(?!user$)[A-Za-z][A-Za-z0-9_]*")
NAME_RULE = "it must begin with a letter, consist of letters, digits and underscores, and not be `user`"

DEFAULT_INSTRUCTION = """\
You are a helpful teammate in a chat. Several people may speak to you in one conversation; where they do, each of
their messages begins with the speaker's name and a colon. Answer the newest message, briefly unless asked for more,
in the language it is written in. Write Markdown. If you do not know something, say so."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is made of besides its model and its tools."""

    name: str = DEFAULT_NAME
    instruction: str = DEFAULT_INSTRUCTION
    description: str = "A helpful teammate."


def make_app(
    config: AgentConfig,
    *,
    model: BaseLlm,
    tools: Sequence[BaseTool | BaseToolset] = (),
    plugins: Sequence[BasePlugin] | None = None,
) -> App:
    """An ADK app around one agent.

    Args:
        plugins: `ours`, with what they are to know.

    Raises:
        SettingsError: ADK takes no such name.
    """
    if NAME.fullmatch(config.name) is None:
        raise SettingsError(f"AGENT_NAME={config.name}: {NAME_RULE}")

    def instruction(_context: ReadonlyContext) -> str:  # ADK fills in the {braces} of a plain text
        return config.instruction

    agent = LlmAgent(
        name=config.name,
        description=config.description,
        model=model,
        instruction=instruction,
        tools=list(tools),
    )
    return App(name=config.name, root_agent=agent, plugins=list(ours() if plugins is None else plugins))


def ours(journal: Journal | None = None, *, tool_seconds: float = TOOL_SECONDS) -> list[BasePlugin]:
    """What is added to every app, before the plugins of its own.

    Args:
        journal: keeps the calls of tools from being made twice, in sessions that are kept.
        tool_seconds: how long a call of a tool may take.
    """
    return [GuardPlugin(journal, tool_seconds=tool_seconds), ChoicePlugin(), MeterPlugin()]
