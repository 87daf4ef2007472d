"""All settings, read from the environment and then from `.env`."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url

from bot.settings.agent import AgentSection
from bot.settings.monitoring import LOOPBACK
from bot.settings.parsing import SPLIT_COMMAS, describe_errors
from bot.settings.sign_in import SignInSection
from bot.settings.spending import SpendingSection
from channels.i18n.messages import find_language
from channels.settings import CONTEXT_MAX_TOKENS, AttachmentLimits, BackfillLimits, ExtraButton, ReplySettings
from core.agents.config import find_env_file
from core.errors import SettingsError
from core.messages.inbox_message import ReplyWithoutMention
from core.observability.secret_redaction import add_secret
from core.privacy.vault import MIN_KEY_LENGTH, is_weak
from core.store.engine_options import normalize_database_url

#: The problem if no platform is configured.
NO_TOKENS = "No SLACK_BOT_TOKEN with SLACK_APP_TOKEN and no DISCORD_BOT_TOKEN is set"

#: Present names of settings by their former names.
RENAMED_SETTINGS = {
    "SLACK_EXTERNAL": "SLACK_ALLOW_EXTERNAL_USERS",
    "SLACK_DM": "SLACK_DM_SESSIONS",
    "SUGGESTED_PROMPTS": "SLACK_SUGGESTED_PROMPTS",
    "ANSWER_BOTS": "SLACK_ALLOW_BOTS",
    "DISCORD_GUILDS": "DISCORD_GUILD_IDS",
    "DISCORD_FREE_CHANNELS": "DISCORD_FREE_CHANNEL_IDS",
    "DISCORD_SILENT": "DISCORD_SILENT_MESSAGES",
    "DISCORD_PING_AFTER": "DISCORD_PING_AFTER_SECONDS",
    "DISCORD_SHARDS": "DISCORD_SHARD_COUNT",
    "RATE_PER_PERSON": "RATE_LIMIT_PER_USER",
    "RATE_PER_PLACE": "RATE_LIMIT_PER_CHANNEL",
    "CAP_PER_PERSON_DAY": "DAILY_SPENDING_LIMIT_PER_USER_USD",
    "CAP_PER_PLACE_DAY": "DAILY_SPENDING_LIMIT_PER_CHANNEL_USD",
    "CAP_PER_MODEL_DAY": "DAILY_SPENDING_LIMIT_PER_MODEL_USD",
    "CAP_DAY": "DAILY_SPENDING_LIMIT_USD",
    "TOOL_SECONDS": "TOOL_TIMEOUT_SECONDS",
    "TURN_SECONDS": "TURN_TIMEOUT_SECONDS",
    "MODEL_IDLE_SECONDS": "MODEL_IDLE_TIMEOUT_SECONDS",
    "STOP_SECONDS": "SHUTDOWN_TIMEOUT_SECONDS",
    "FOLLOW": "REPLY_WITHOUT_MENTION",
    "TURNS_KEPT_DAYS": "TURN_RETENTION_DAYS",
    "CATCH_UP_HOURS": "BACKFILL_HOURS",
    "TURNS_AT_ONCE": "MAX_CONCURRENT_TURNS",
    "HISTORY_TOKENS": "HISTORY_MAX_TOKENS",
    "CONTEXT_TOKENS": "CONTEXT_MAX_TOKENS",
    "DATABASE_CONNECTIONS": "DATABASE_POOL_SIZE",
}

#: Names of former settings, and what applies instead.
REMOVED_SETTINGS = {
    "ALLOW_EPHEMERAL_DATABASE": "DATABASE_URL=sqlite:///parley.db allows SQLite on Heroku",
    "BACKFILL_MAX_MESSAGES": "a backfill answers the newest 100 messages; BACKFILL_HOURS limits their age",
    "BOT_LOOP_LIMIT": "the bot answers 5 messages of bots in a row",
    "CATCH_UP_MESSAGES": "a backfill answers the newest 100 messages; BACKFILL_HOURS limits their age",
    "FILE_MAX_COUNT": "the model reads 5 files of a message; FILE_MAX_MB=0 turns files off",
    "FILES_MAX": "the model reads 5 files of a message; FILE_MAX_MB=0 turns files off",
    "HISTORY_MAX_TURNS": "the model reads at most 40 turns; HISTORY_MAX_TOKENS limits their length",
    "HISTORY_TURNS": "the model reads at most 40 turns; HISTORY_MAX_TOKENS limits their length",
    "REPLY_MAX_MESSAGES": "a reply has at most 5 messages, then a file",
    "SLACK_BOT_LOOP_LIMIT": "the bot answers 5 messages of bots in a row",
}

#: Words in the names of settings that limit or protect, and without which the bot has no such limit or protection.
_PROTECTIVE_WORDS = frozenset(
    {"LIMIT", "ALLOW", "BLOCK", "ADMINS", "APPROVERS", "APPROVAL", "RETENTION", "GUILD", "METRICS"}
)


class Settings(SignInSection, AgentSection, SpendingSection):
    """All settings of the process; `.env.example` explains each."""

    hooks_file: Path = Path("hooks.toml")

    database_url: Annotated[str, AfterValidator(normalize_database_url)] = ""
    database_pool_size: int = Field(default=15, ge=3)
    data_dir: Path = Path(".parley")
    history_max_tokens: int = Field(default=32_000, gt=0)
    context_max_tokens: int = Field(default=CONTEXT_MAX_TOKENS, ge=0)
    summaries: bool = True
    summary_model: str = ""

    file_max_mb: int = Field(default=10, ge=0)

    language: str = "en"
    reply_buttons: Annotated[tuple[ExtraButton, ...], NoDecode, SPLIT_COMMAS] = ("regenerate", "feedback")
    reply_without_mention: ReplyWithoutMention = "author"
    while_running: Literal["steer", "queue"] = "steer"

    turn_timeout_seconds: float = Field(default=600, gt=0)
    model_idle_timeout_seconds: float = Field(default=120, gt=0)
    thinking_starts_open: bool = False
    max_concurrent_turns: int = Field(default=100, gt=0)
    turn_max_attempts: int = Field(default=3, gt=0)
    turn_retention_days: float = Field(default=30, gt=0)
    retention_days: float = Field(default=0, ge=0)
    keep_prompts_days: float = Field(default=0, ge=0)
    max_schedules: int = Field(default=20, ge=0)
    schedule_min_minutes: float = Field(default=5, ge=1)
    lease_seconds: float = Field(default=10, gt=0)
    shutdown_timeout_seconds: float = Field(default=20, gt=0)
    backfill_hours: float = Field(default=24, ge=0)

    @field_validator("language")
    @classmethod
    def _resolve_language(cls, value: str) -> str:
        """Return the first supported language of a colon-separated list, else `en`.

        LANGUAGE is also gettext's variable, which has such lists.
        """
        return find_language(value) or "en"

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if self.backfill_hours >= self.turn_retention_days * 24:
            yield (
                "BACKFILL_HOURS: it must be less than TURN_RETENTION_DAYS, or messages whose turns are already deleted "
                "would be answered again"
            )
        if self.approval_hours > self.turn_retention_days * 24:
            yield "APPROVAL_HOURS: it must be at most TURN_RETENTION_DAYS, when approvals are deleted"
        if self.keep_prompts_days > self.turn_retention_days:
            yield "KEEP_PROMPTS_DAYS: it must be at most TURN_RETENTION_DAYS, when prompts are deleted with their turns"
        encrypted = ("the tokens of workspaces",) * bool(self.slack_client_id)
        encrypted += ("the prompts of KEEP_PROMPTS_DAYS",) * bool(self.keep_prompts_days)
        encrypted += ("the accounts that people connect",) * bool(self.sign_in_platforms)
        if encrypted and is_weak(self.encryption_key):
            yield (
                f"SECRET_KEY: it encrypts {' and '.join(encrypted)}, so it must be hard to guess: set "
                f"{MIN_KEY_LENGTH} random characters or more (`openssl rand -hex 32`), and keep them"
            )
        if "DYNO" in os.environ and not self.database_url:
            yield (
                "DATABASE_URL: a dyno loses its disk at each restart; add Postgres with "
                "`heroku addons:create heroku-postgresql`, or set DATABASE_URL=sqlite:///parley.db to lose all memory "
                "daily"
            )

    @property
    def database_address(self) -> str:
        """URL of the database; by default of a SQLite file in the data folder."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'parley.db'}"

    @property
    def hooks_path(self) -> Path | None:
        """Path of the file with the hooks; None if there are none."""
        return self.hooks_file if "hooks_file" in self.model_fields_set or self.hooks_file.exists() else None

    @property
    def needs_public_http(self) -> bool:
        """True if a program sends requests to this process: Slack, a hook's or ticket's, or a browser to install it."""
        return self.hooks_path is not None or bool(self.public_url) or super().needs_public_http

    @property
    def listen_address(self) -> str | None:
        """Address that the HTTP server listens on; None for all interfaces.

        Without `listen_host`, it is None if other programs send requests to this server (see `needs_public_http`), or
        Heroku's router does; else loopback.
        """
        return self.listen_host or (None if self.needs_public_http or "DYNO" in os.environ else LOOPBACK)

    @property
    def vocabulary_dir(self) -> Path:
        """Folder of the tokenizer's vocabulary, which `parley warm` downloads."""
        return self.data_dir / "tiktoken"

    @property
    def reply_settings(self) -> ReplySettings:
        return ReplySettings(
            time_limit=self.turn_timeout_seconds,
            max_attempts=self.turn_max_attempts,
            extra_buttons=frozenset(self.reply_buttons),
            attachment_limits=AttachmentLimits(max_bytes=self.file_max_mb * 2**20),
        )

    @property
    def backfill_limits(self) -> BackfillLimits:
        return BackfillLimits(hours=self.backfill_hours)

    def list_secrets(self) -> list[str]:
        """Return all tokens, keys and passwords in the settings, for redaction."""
        secrets = [value for _, value in self if isinstance(value, SecretStr)]
        values = [value.get_secret_value() for value in (*secrets, *self.sign_in_client_secrets.values())]
        password = make_url(self.database_address).password
        return [*values, password] if password else values


def load_settings() -> Settings:
    """Read the settings, register their secrets for redaction, and return them.

    The `.env` that `find_env_file` finds for `AGENT` counts too, after the environment and `.env`.

    Raises:
        SettingsError: `.env` cannot be read, or settings are missing, malformed, renamed or conflicting. Each such
            setting has a line. With a platform configured, faults of models have lines, too; alone they raise nothing.
    """
    try:
        settings, malformed = _read_settings(Settings)
        agent_file = find_env_file(settings.agent) if settings.agent else None
        if agent_file is not None and agent_file != Path(".env").resolve():
            files: tuple[Path | str, ...] = (agent_file, ".env")  # pydantic-settings: the last file wins

            class SettingsWithAgentFile(Settings):
                model_config = SettingsConfigDict(env_file=files)

            settings, malformed = _read_settings(SettingsWithAgentFile)
        renamed = _find_renamed_settings()
    except UnicodeDecodeError:
        raise SettingsError(".env: it is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(f".env: it cannot be read ({error.strerror})") from None
    conflicts = [line for line in settings.find_conflicts() if not any(name in line for name in malformed)]
    if malformed or renamed or conflicts:
        is_for_platform = (
            settings.slack
            or settings.discord
            or settings.slack_app_token
            or any("_TOKEN" in name for name in malformed)
        )
        model_faults = settings.find_model_faults() if is_for_platform else ()  # the simulator needs no key
        lines = [*renamed, *(line for lines in malformed.values() for line in lines)]
        raise SettingsError(*lines, *conflicts, *(line for line in model_faults if line not in lines))
    for secret in settings.list_secrets():
        add_secret(secret)
    return settings


def _read_settings(kind: type[Settings]) -> tuple[Settings, dict[str, list[str]]]:
    """Return the settings, and by variable the error lines of malformed ones, which have their default value."""
    malformed = dict[str, list[str]]()
    defaults = dict[str, Any]()
    while True:
        try:
            return kind(**defaults), malformed
        except ValidationError as error:
            for name, line in describe_errors(error, Settings.model_fields):
                malformed.setdefault(name.upper(), []).append(line)
                defaults[name] = Settings.model_fields[name].get_default()


def _find_renamed_settings() -> list[str]:
    names = {name.upper() for name in (*os.environ, *dotenv_values(".env"))}
    return [f"{old}: this setting is now {new}" for old, new in RENAMED_SETTINGS.items() if old in names]


@dataclass(frozen=True, slots=True)
class UnknownSetting:
    """A variable that is no setting but was one, or resembles one.

    Attributes:
        source: `.env` or `environment`.
        setting: the most similar setting; empty for a removed one.
    """

    source: str
    name: str
    setting: str = ""

    def __str__(self) -> str:
        if self.setting:
            return f"{self.source}: {self.name} is no setting: did you mean {self.setting}?"
        return f"{self.source}: {self.name} is no setting any more: {REMOVED_SETTINGS[self.name.upper()]}"

    @property
    def is_protective(self) -> bool:
        """True if it resembles a setting that limits or protects."""
        return _is_protective(self.setting)


def find_unknown_settings() -> list[UnknownSetting]:
    """Return removed settings, variables in `.env` that resemble a setting, and those of the environment like a limit.

    A name resembles a setting if their `difflib` ratio is at least 0.75. In the environment, which has variables of
    other programs, only limits and settings that protect are compared, and the ratio is at least 0.85. In both, a name
    resembles such a setting too if it has only words of it, such as `SPENDING_LIMIT`. A `.env` that cannot be read has
    no unknown settings: `load_settings` raises the error.
    """
    known = [name.upper() for name in Settings.model_fields]
    protective = [*filter(_is_protective, known)]
    names = dict[str, str | None]()
    with suppress(OSError, UnicodeDecodeError):
        names = dotenv_values(".env")
    found = list[UnknownSetting]()
    sources = ((".env", names, known, 0.75), ("environment", os.environ, protective, 0.85))
    for source, variables, settings, cutoff in sources:
        for name in variables:
            if name.upper() in {*known, *RENAMED_SETTINGS}:
                continue
            if name.upper() in REMOVED_SETTINGS:
                found.append(UnknownSetting(source, name))
                continue
            nearest = get_close_matches(name.upper(), settings, n=1, cutoff=cutoff) or get_close_matches(
                name.upper(), [setting for setting in protective if _has_words_of(name.upper(), setting)], n=1, cutoff=0
            )
            found += [UnknownSetting(source, name, setting) for setting in nearest]
    return found


def _is_protective(setting: str) -> bool:
    return not _PROTECTIVE_WORDS.isdisjoint(setting.split("_"))


def _has_words_of(name: str, setting: str) -> bool:
    """Return whether a name has two words or more, all similar to words of a setting, and one of them protective."""
    words = name.split("_")
    known = setting.split("_")
    nearest = set[str]()
    for word in words:
        matches = get_close_matches(word, known, n=1, cutoff=0.75)
        if not matches:
            return False
        nearest.update(matches)
    return len(words) > 1 and not _PROTECTIVE_WORDS.isdisjoint(nearest)
