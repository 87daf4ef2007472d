"""Progress texts: lines that are shown while a tool runs.

Names in braces stand for arguments of the call: `Reading {url}`.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from google.adk.apps import App
from google.adk.tools.base_tool import BaseTool

from core.agents.loader import list_llm_agents
from core.tools.mcp import McpServer

#: Progress texts of Parley's and ADK's built-in tools.
BUILTIN_PROGRESS_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "current_time": "Checking the time",
        "search_history": "Searching the conversation",
        "read_page": "Reading {url}",
        "make_file": "Writing {name}",
        "transfer_to_agent": "Transferring to {agent_name}",
        "load_memory": "Searching memory",
        "load_artifacts": "Loading files",
        "google_search": "Searching the web",
    }
)


def get_progress_texts(app: App) -> dict[str, str]:
    """Return the texts to show while an app's tools run, by tool name."""
    return dict(_iterate_progress_texts(app))


def _iterate_progress_texts(app: App) -> Iterator[tuple[str, str]]:
    for agent in list_llm_agents(app):
        for tool in agent.tools:
            if isinstance(tool, McpServer):
                yield from tool.progress_texts.items()
                continue
            name = tool.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", "")
            for marked in (tool, getattr(tool, "func", None)):
                if isinstance(line := getattr(marked, "progress", None), str) and line:
                    yield name, line
