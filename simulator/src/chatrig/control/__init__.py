"""HTTP control API of `chatrig serve`, for tests in any language."""

from chatrig.control.server import ControlServer

__all__ = ["ControlServer"]
