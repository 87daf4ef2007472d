"""Web page on which a user tries the bot on both local platforms and inspects it."""

from chatrig.page.server import PageServer

__all__ = ["PageServer"]
