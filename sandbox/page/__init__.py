"""A page on this machine, on which one is several people of the sandboxes, and sees what the bot does there."""

from sandbox.page.bot import Bot
from sandbox.page.server import Page

__all__ = ["Bot", "Page"]
