"""The settings of what the process says of itself."""

from typing import Literal

from pydantic import Field, SecretStr

from bot.settings.base import Part
from bot.settings.parsing import revealed

#: The address that only this machine reaches.
LOOPBACK = "127.0.0.1"


class WatchPart(Part):
    """How the process is watched."""

    port: int = Field(default=3000, ge=0, le=65535)
    listen_host: str = ""
    metrics: bool = True
    metrics_token: SecretStr | None = None
    log_level: str = Field(
        default="INFO", pattern="^(?i:debug|info|warning|error)$", description="DEBUG, INFO, WARNING or ERROR"
    )
    log_format: Literal["console", "json"] = "console"

    @property
    def shown_token(self) -> str:
        """What who asks for metrics has to show; empty if nothing."""
        return revealed(self.metrics_token) or ""
