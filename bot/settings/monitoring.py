"""Settings of the HTTP server, metrics and logs."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from bot.settings.base import SettingsSection
from bot.settings.parsing import HttpUrl, get_secret_value

#: Address that only this machine can reach.
LOOPBACK = "127.0.0.1"


class MonitoringSection(SettingsSection):
    """Settings of the HTTP server, metrics and logs."""

    port: int = Field(default=3000, ge=0, le=65535)
    listen_host: str = ""
    public_url: Annotated[HttpUrl, AfterValidator(lambda url: url.rstrip("/"))] | None = None
    metrics: bool = True
    metrics_token: SecretStr | None = None
    log_level: str = Field(
        default="INFO", pattern="^(?i:debug|info|warning|error)$", description="DEBUG, INFO, WARNING or ERROR"
    )
    log_format: Literal["console", "json"] = "console"

    @property
    def metrics_bearer_token(self) -> str:
        """Token that clients of `/metrics` must send; empty if they need none."""
        return get_secret_value(self.metrics_token) or ""
