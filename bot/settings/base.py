"""Base class of the sections of settings."""

import os
from collections.abc import Iterator

from pydantic import field_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict


class SettingsSection(BaseSettings):
    """Group of settings, each read from the environment, or else from `.env`.

    An empty value counts as unset; in the environment, it also hides the value in `.env`. Spaces around a value are
    removed, and unknown names are ignored.
    """

    model_config = SettingsConfigDict(
        env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True, allow_inf_nan=False
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Remove the values of `.env` that an empty environment variable hides.

        `env_ignore_empty` alone ignores the empty variable, and reads the value in `.env`.
        """
        if isinstance(dotenv_settings, DotEnvSettingsSource):
            hidden = {name.lower() for name, value in os.environ.items() if not value}
            values = dotenv_settings.env_vars.items()
            dotenv_settings.env_vars = {name: value for name, value in values if name.lower() not in hidden}
        return init_settings, env_settings, dotenv_settings, file_secret_settings

    @field_validator("*", mode="before")
    @classmethod
    def _strip_whitespace(cls, value: object) -> object:
        """Remove spaces and line ends around a text: pasted values have them."""
        return value.strip() if isinstance(value, str) else value

    def find_conflicts(self) -> Iterator[str]:
        """Yield an error line, with the remedy, for each conflict between settings that are valid alone."""
        yield from ()
