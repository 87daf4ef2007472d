"""Tools of agents: the names that users import, or list in `TOOLS`.

Each name is imported on first use: ADK takes over a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tools.builtin.make_file import make_file
    from core.tools.builtin.read_page import read_page
    from core.tools.builtin.search_history import search_history
    from core.tools.tool import Tool, allowed, current_time, idempotent

__all__ = ["Tool", "allowed", "current_time", "idempotent", "make_file", "read_page", "search_history"]

_MODULES = {
    "Tool": "core.tools.tool",
    "allowed": "core.tools.tool",
    "current_time": "core.tools.tool",
    "idempotent": "core.tools.tool",
    "make_file": "core.tools.builtin.make_file",
    "read_page": "core.tools.builtin.read_page",
    "search_history": "core.tools.builtin.search_history",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
