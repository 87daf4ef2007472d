"""What every group of settings has in common."""

from collections.abc import Iterator

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Part(BaseSettings):
    """A group of settings: from the environment, and from `.env` where the environment is silent."""

    model_config = SettingsConfigDict(env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _trimmed(cls, value: object) -> object:
        """What is pasted comes with spaces and line ends."""
        return value.strip() if isinstance(value, str) else value

    def faults(self) -> Iterator[str]:
        """Yield a line for each contradiction between settings that are sound one by one."""
        yield from ()
