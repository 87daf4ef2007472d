"""Settings: from the environment, and from `.env` where the environment is silent."""

from bot.settings.agent import DEFAULT_MODEL, LOCAL_MODEL
from bot.settings.settings import NO_TOKENS, Settings, load, unknown_names

__all__ = ["DEFAULT_MODEL", "LOCAL_MODEL", "NO_TOKENS", "Settings", "load", "unknown_names"]
