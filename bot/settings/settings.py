"""Settings: from the environment, and from `.env` where the environment is silent."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url

from bot.settings.access import AccessPart
from bot.settings.agent import AgentPart
from bot.settings.monitoring import LOOPBACK, WatchPart
from bot.settings.parsing import explain, several, with_driver
from bot.settings.spending import MoneyPart
from channels.i18n.messages import spoken
from channels.settings import CONTEXT_TOKENS, Allowance, Bounds, Extra, ReplySettings
from core.agents.config import dotenv
from core.errors import SettingsError
from core.inbox_message import Follow
from core.secret_redaction import remember

#: What is missing when there is no platform to run on.
NO_TOKENS = "No SLACK_BOT_TOKEN with SLACK_APP_TOKEN and no DISCORD_BOT_TOKEN is set"


class Settings(AccessPart, AgentPart, MoneyPart, WatchPart):
    """Every setting; `.env.example` explains them one by one."""

    database_url: str = ""
    database_connections: int = Field(default=15, ge=3)
    allow_ephemeral_database: bool = False
    data_dir: Path = Path(".parley")
    history_tokens: int = Field(default=32_000, gt=0)
    history_turns: int = Field(default=40, gt=0)
    context_tokens: int = Field(default=CONTEXT_TOKENS, ge=0)
    summaries: bool = True
    summary_model: str = ""

    file_max_mb: int = Field(default=10, ge=0)
    files_max: int = Field(default=5, ge=0)

    language: str = "en"
    reply_buttons: Annotated[tuple[Extra, ...], NoDecode] = ("regenerate", "feedback", "why")
    follow: Follow = "asker"

    turn_seconds: float = Field(default=600, gt=0)
    model_idle_seconds: float = Field(default=120, gt=0)
    reply_max_messages: int = Field(default=5, gt=0)
    turns_at_once: int = Field(default=100, gt=0)
    turn_max_attempts: int = Field(default=3, gt=0)
    turns_kept_days: float = Field(default=30, gt=0)
    retention_days: float = Field(default=0, ge=0)
    lease_seconds: float = Field(default=10, gt=0)
    stop_seconds: float = Field(default=20, gt=0)
    catch_up_hours: float = Field(default=24, ge=0)
    catch_up_messages: int = Field(default=100, gt=0)

    @field_validator("reply_buttons", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return several(value)

    @field_validator("language")
    @classmethod
    def _is_spoken(cls, value: str) -> str:
        """On many machines the variable is there, for other programs as well, and may name several."""
        return spoken(value) or "en"

    @field_validator("database_url")
    @classmethod
    def _with_driver(cls, value: str) -> str:
        return with_driver(value)

    def faults(self) -> Iterator[str]:
        """Yield a line for each contradiction between settings."""
        yield from super().faults()
        if self.catch_up_hours >= self.turns_kept_days * 24:
            yield (
                "CATCH_UP_HOURS: it must be less than TURNS_KEPT_DAYS; what was answered before would not be known any "
                "more, and be answered again"
            )
        if self.approval_hours > self.turns_kept_days * 24:
            yield "APPROVAL_HOURS: it must not be more than TURNS_KEPT_DAYS, after which it is forgotten"
        if "DYNO" in os.environ and self.database.startswith("sqlite") and not self.allow_ephemeral_database:
            yield (
                "DATABASE_URL: a dyno's disk does not outlive a restart; add Postgres with "
                "`heroku addons:create heroku-postgresql`, or set ALLOW_EPHEMERAL_DATABASE=1 to lose all memory daily"
            )

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'parley.db'}"

    @property
    def listen_address(self) -> str | None:
        """The address of the HTTP server; None for all interfaces, where Slack or Heroku's router calls it."""
        return self.listen_host or (None if self.is_called or "DYNO" in os.environ else LOOPBACK)

    @property
    def vocabulary_dir(self) -> Path:
        """Where `warm` puts what tokens are counted with."""
        return self.data_dir / "tiktoken"

    @property
    def replies(self) -> ReplySettings:
        return ReplySettings(
            time_limit=self.turn_seconds,
            most_messages=self.reply_max_messages,
            most_attempts=self.turn_max_attempts,
            extras=frozenset(self.reply_buttons),
            allowance=Allowance(most_bytes=self.file_max_mb * 2**20, most_files=self.files_max),
        )

    @property
    def catch_up(self) -> Bounds:
        return Bounds(hours=self.catch_up_hours, messages=self.catch_up_messages)

    def secrets(self) -> list[str]:
        """Every value that must not leave the process."""
        values = [value.get_secret_value() for _, value in self if isinstance(value, SecretStr)]
        password = make_url(self.database).password
        return [*values, password] if password else values


def load() -> Settings:
    """The settings, with their secrets remembered for redaction.

    Raises:
        SettingsError: a line for each that is missing, malformed or in contradiction, and for what is missing for the
            models.
    """
    try:
        settings, malformed = _read(Settings)
        beside = dotenv(settings.agent) if settings.agent else None
        if beside is not None and beside != Path(".env").resolve():
            files: tuple[Path | str, ...] = (beside, ".env")  # pydantic-settings: the last one holds

            class Beside(Settings):
                model_config = SettingsConfigDict(env_file=files)

            settings, malformed = _read(Beside)
    except UnicodeDecodeError:
        raise SettingsError(".env: it is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(f".env: it cannot be read ({error.strerror})") from None
    others = [fault for fault in settings.faults() if not any(name in fault for name in malformed)]
    if malformed or others:
        is_for_platform = (
            settings.slack
            or settings.discord
            or settings.slack_app_token
            or any("_TOKEN" in name for name in malformed)
        )
        of_models = settings.model_faults() if is_for_platform else ()  # the sandbox does without a key
        lines = [line for lines in malformed.values() for line in lines]
        raise SettingsError(*lines, *others, *(fault for fault in of_models if fault not in lines))
    for secret in settings.secrets():
        remember(secret)
    return settings


def _read(kind: type[Settings]) -> tuple[Settings, dict[str, list[str]]]:
    """Return the settings, each malformed one at its default, and the faults by the variable's name."""
    malformed = dict[str, list[str]]()
    defaults = dict[str, Any]()
    while True:
        try:
            return kind(**defaults), malformed
        except ValidationError as error:
            for name, line in explain(error, Settings.model_fields):
                malformed.setdefault(name.upper(), []).append(line)
                defaults[name] = Settings.model_fields[name].get_default()


def unknown_names() -> list[str]:
    """Return a line for each name in `.env` that is no setting and resembles one."""
    known = [name.upper() for name in Settings.model_fields]
    lines = list[str]()
    for name in dotenv_values(".env"):
        if name.upper() not in known and (nearest := get_close_matches(name.upper(), known, n=1, cutoff=0.75)):
            lines.append(f".env: {name} is no setting: did you mean {nearest[0]}?")
    return lines
