"""Lazy imports of slow modules, such as ADK and its types (over a second).

The command line and the intake start without them: modules that need them only in annotations and inside functions
import them on first use.
"""

from functools import cached_property
from importlib import import_module
from typing import Any


class Late:
    """A module, or what has a name in one, which is imported when anything is asked of it.

    Args:
        module: where it is.
        name: of what is meant in it; empty for the module itself.
    """

    def __init__(self, module: str, name: str = "") -> None:
        self._module = module
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meant, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._meant(*args, **kwargs)

    @cached_property
    def _meant(self) -> Any:
        module = import_module(self._module)
        return getattr(module, self._name) if self._name else module
