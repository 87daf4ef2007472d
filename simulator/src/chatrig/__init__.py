"""Local Slack, Discord and model servers, to try and test chat bots without an account.

Public: this module, `chatrig.slack`, `chatrig.discord` and `chatrig.models`. All other modules may change.
"""

from chatrig.testing.blocking import blocking, start_bot
from chatrig.testing.process import Bot, BotError

__all__ = ["Bot", "BotError", "blocking", "start_bot"]
