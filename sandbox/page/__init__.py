"""Web page on which a user tries the bot on both local platforms and inspects it."""

from sandbox.managed_bot import ManagedBot
from sandbox.page.server import PageServer

__all__ = ["ManagedBot", "PageServer"]
