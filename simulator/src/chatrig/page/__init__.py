"""Web page on which a user tries the bot on both local platforms and inspects it."""

from chatrig.managed_bot import ManagedBot
from chatrig.page.server import PageServer

__all__ = ["ManagedBot", "PageServer"]
