"""Base class of the sections of settings."""

from collections.abc import Iterator

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class SettingsSection(BaseSettings):
    """Group of settings, each read from the environment, or else from `.env`.

    An empty value counts as unset, spaces around a value are removed, and unknown names are ignored.

    Raises:
        ValidationError: a value is malformed (pydantic's error).
    """

    model_config = SettingsConfigDict(env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _strip_whitespace(cls, value: object) -> object:
        """Return a text without spaces and line ends around it: pasted values have them.

        A value that is not text is returned unchanged.
        """
        return value.strip() if isinstance(value, str) else value

    def find_conflicts(self) -> Iterator[str]:
        """Yield an error line for each conflict between settings that are valid alone.

        Subclasses override this; here there are none.
        """
        yield from ()
