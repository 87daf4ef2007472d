"""Settings of sign-ins: people connect their accounts at other services."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BeforeValidator, SecretStr
from pydantic_settings import NoDecode

from bot.settings.access import AccessSection
from bot.settings.monitoring import MonitoringSection
from bot.settings.parsing import is_loopback


def _parse_secrets(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        secrets = json.loads(value)
    except (ValueError, RecursionError):
        secrets = None
    if not isinstance(secrets, dict) or not all(isinstance(secret, str) for secret in secrets.values()):
        raise ValueError('it must be a JSON object of client ids and their secrets: {"ID": "SECRET"}')
    return secrets


class SignInSection(AccessSection, MonitoringSection):
    """Settings of sign-ins: the credentials with which a platform tells which of its users a browser belongs to."""

    slack_sign_in_client_id: str = ""
    slack_sign_in_client_secret: SecretStr | None = None
    discord_client_secret: SecretStr | None = None
    sign_in_client_secrets: Annotated[Mapping[str, SecretStr], NoDecode, BeforeValidator(_parse_secrets)] = {}

    @property
    def is_local(self) -> bool:
        """True if only browsers on this machine reach `PUBLIC_URL`, so that the simulator may serve sign-ins too."""
        return self.public_url is not None and is_loopback(self.public_url)

    @property
    def sign_in_platforms(self) -> tuple[str, ...]:
        """Names of the platforms whose people can connect accounts."""
        return tuple(name for name, missing in self.find_missing_sign_in_settings() if not missing)

    def describe_missing_sign_in(self) -> str:
        """Return the settings without which nobody can connect an account; empty if somebody can."""
        if self.sign_in_platforms:
            return ""
        found = [name for _, missing in self.find_missing_sign_in_settings() for name in missing]
        return ", ".join(dict.fromkeys(found)) or (
            "PUBLIC_URL, SECRET_KEY, and SLACK_SIGN_IN_CLIENT_ID with its secret or DISCORD_CLIENT_SECRET"
        )

    def find_missing_sign_in_settings(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each platform that is set up and has a setting of sign-ins, with what is missing for them."""
        common = []
        if self.public_url is None:
            common.append("PUBLIC_URL")
        elif not self.public_url.startswith("https://") and not self.is_local:
            common.append("https:// in PUBLIC_URL")
        if not self.encryption_key:
            common.append("SECRET_KEY")
        slack = {
            "SLACK_SIGN_IN_CLIENT_ID": self.slack_sign_in_client_id,
            "SLACK_SIGN_IN_CLIENT_SECRET": self.slack_sign_in_client_secret,
        }
        if self.slack is not None and any(slack.values()):
            yield "slack", [*(name for name, value in slack.items() if not value), *common]
        if self.discord is not None and self.discord_client_secret:
            yield "discord", common
