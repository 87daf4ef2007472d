"""Settings of the process, from the environment and `.env`."""

from bot.settings.agent import DEFAULT_MODEL, LOCAL_MODEL
from bot.settings.settings import NO_TOKENS, Settings, find_unknown_settings, load_settings

__all__ = ["DEFAULT_MODEL", "LOCAL_MODEL", "NO_TOKENS", "Settings", "find_unknown_settings", "load_settings"]
