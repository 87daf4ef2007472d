"""Web page on which a user tries the bot on both local platforms and inspects it."""

from sandbox.page.bot_process import Bot
from sandbox.page.server import Page

__all__ = ["Bot", "Page"]
