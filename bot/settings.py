"""Settings: from the environment, and from `.env` where the environment is silent."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url

from bot.values import SLACK_APPS, address, begins, ids, line, read, revealed, with_driver
from channels.attachments import Allowance
from channels.buttons import Extra
from channels.context import TOKENS
from channels.discord.login import DISCORD_API, DiscordSettings, Sessions
from channels.gaps import Bounds
from channels.slack.hearing import Direct
from channels.slack.login import MOST_PROMPTS, PROMPTS, Mode, SlackSettings
from channels.slack.streams import Streaming
from channels.words import spoken
from core.agent import DEFAULT_INSTRUCTION, DEFAULT_NAME, NAME, NAME_RULE, AgentConfig
from core.approvals import ASKER
from core.conversations import Follow
from core.errors import SettingsError
from core.layout import dotenv
from core.models.catalog import Endpoints
from core.secrets import remember
from core.tools import TOOL_SECONDS
from core.vault import SHORTEST_KEY

_DISCORD_APPS = "https://discord.com/developers/applications"

#: What is missing when there is no platform to run on.
NO_TOKENS = "No SLACK_BOT_TOKEN with SLACK_APP_TOKEN and no DISCORD_BOT_TOKEN is set"

DEFAULT_MODEL = "gemini-3.5-flash"

#: What is said of the agent that is built in, and of no other.
_OF_OUR_AGENT = ("agent_name", "agent_instruction", "agent_instruction_file", "tools", "mcp_file")

#: Needs no key and no network.
LOCAL_MODEL = "local/smollm2-135m"


class Settings(BaseSettings):
    """Every setting; `.env.example` explains them one by one."""

    model_config = SettingsConfigDict(env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True)

    slack_bot_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_api_url: str = "https://slack.com/api/"
    slack_streaming: Streaming = "auto"
    slack_dm: Direct = "thread"
    slack_mode: Mode = "socket"
    slack_signing_secret: SecretStr | None = None
    slack_sockets: int = Field(default=1, ge=1, le=2)
    slack_client_id: str = ""
    slack_client_secret: SecretStr | None = None
    slack_external: bool = False
    suggested_prompts: str = " | ".join(PROMPTS)
    answer_bots: bool = False
    bot_loop_limit: int = Field(default=5, gt=0)

    discord_bot_token: SecretStr | None = None
    discord_api_url: str = DISCORD_API
    discord_guilds: Annotated[tuple[int, ...], NoDecode] = ()
    discord_channel_sessions: Sessions = "shared"
    discord_auto_thread: bool = False
    discord_free_channels: Annotated[tuple[int, ...], NoDecode] = ()
    discord_silent: bool = False
    discord_ping_after: float = Field(default=0, ge=0)
    discord_shards: str = Field(default="auto", pattern="^(auto|[1-9][0-9]*)$")

    model: str = DEFAULT_MODEL
    models: Annotated[tuple[str, ...], NoDecode] = ()
    google_api_key: SecretStr | None = None
    google_base_url: str | None = None
    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: str | None = None

    agent: str = ""
    agent_name: str = DEFAULT_NAME
    agent_instruction: str = DEFAULT_INSTRUCTION
    agent_instruction_file: Path | None = None
    tools: Annotated[tuple[str, ...], NoDecode] = ("core.tools:current_time",)
    mcp_file: Path = Path("mcp.toml")
    tool_seconds: float = Field(default=TOOL_SECONDS, gt=0)

    database_url: str = ""
    database_connections: int = Field(default=15, ge=3)
    allow_ephemeral_database: bool = False
    data_dir: Path = Path(".parley")
    history_tokens: int = Field(default=32_000, gt=0)
    context_tokens: int = Field(default=TOKENS, ge=0)

    file_max_mb: int = Field(default=10, ge=0)
    files_max: int = Field(default=5, ge=0)

    language: str = "en"
    reply_buttons: Annotated[tuple[Extra, ...], NoDecode] = ("regenerate", "feedback")
    follow: Follow = "asker"
    approvers: Annotated[tuple[str, ...], NoDecode] = (ASKER,)
    approval_hours: float = Field(default=24, gt=0)

    turn_seconds: float = Field(default=600, gt=0)
    model_idle_seconds: float = Field(default=120, gt=0)
    reply_max_messages: int = Field(default=5, gt=0)
    turns_at_once: int = Field(default=100, gt=0)
    turn_max_attempts: int = Field(default=3, gt=0)
    turns_kept_days: float = Field(default=30, gt=0)
    lease_seconds: float = Field(default=10, gt=0)
    stop_seconds: float = Field(default=20, gt=0)
    catch_up_hours: float = Field(default=24, ge=0)
    catch_up_messages: int = Field(default=100, gt=0)

    port: int = Field(default=3000, ge=0, le=65535)
    secret_key: SecretStr | None = None
    log_level: str = Field(default="INFO", pattern="^(?i:debug|info|warning|error)$")

    @field_validator("*", mode="before")
    @classmethod
    def _trimmed(cls, value: object) -> object:
        """What is pasted comes with spaces and line ends."""
        return value.strip() if isinstance(value, str) else value

    @field_validator("agent_name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if NAME.fullmatch(value) is None:
            raise ValueError(NAME_RULE)
        return value

    @field_validator("agent_instruction_file")
    @classmethod
    def _is_instruction(cls, value: Path | None) -> Path | None:
        if value is not None and not read(value).strip():
            raise ValueError(f"{value} is empty")
        return value

    @field_validator("tools", "models", "reply_buttons", "approvers", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("language")
    @classmethod
    def _is_spoken(cls, value: str) -> str:
        """On many machines the variable is there, for other programs as well, and may name several."""
        return spoken(value) or "en"

    @field_validator("slack_bot_token")
    @classmethod
    def _is_bot_token(cls, value: SecretStr | None) -> SecretStr | None:
        return begins(value, "xoxb-", "OAuth & Permissions")

    @field_validator("slack_app_token")
    @classmethod
    def _is_app_token(cls, value: SecretStr | None) -> SecretStr | None:
        return begins(value, "xapp-", "Basic Information, App-Level Tokens (scope connections:write)")

    @field_validator("discord_bot_token")
    @classmethod
    def _is_discord_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and value.get_secret_value().count(".") != 2:
            raise ValueError(f"it must have two dots in it; copy it at {_DISCORD_APPS}, your app, under Bot")
        return value

    @field_validator("discord_guilds", mode="before")
    @classmethod
    def _are_servers(cls, value: object) -> object:
        return ids(value, "ids of servers, with commas in between (right-click a server, Copy Server ID)")

    @field_validator("discord_free_channels", mode="before")
    @classmethod
    def _are_channels(cls, value: object) -> object:
        return ids(value, "ids of channels, with commas in between (right-click a channel, Copy Channel ID)")

    @field_validator("slack_api_url", "discord_api_url", "google_base_url", "openai_base_url", "anthropic_base_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        return address(value)

    @field_validator("slack_api_url")
    @classmethod
    def _ends_in_slash(cls, value: str) -> str:
        return value if value.endswith("/") else f"{value}/"

    @field_validator("discord_api_url")
    @classmethod
    def _ends_in_no_slash(cls, value: str) -> str:
        return value.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _with_driver(cls, value: str) -> str:
        return with_driver(value)

    @model_validator(mode="after")
    def _agree(self) -> "Settings":
        self._check_slack()
        self._check_agent()
        if len(self.prompts) > MOST_PROMPTS:
            raise ValueError(f"SUGGESTED_PROMPTS: Slack shows {MOST_PROMPTS} at the most, with | in between")
        if self.catch_up_hours >= self.turns_kept_days * 24:
            raise ValueError(
                "CATCH_UP_HOURS: it must be less than TURNS_KEPT_DAYS; what was answered before would not be known any "
                "more, and be answered again"
            )
        if self.approval_hours > self.turns_kept_days * 24:
            raise ValueError("APPROVAL_HOURS: it must not be more than TURNS_KEPT_DAYS, after which it is forgotten")
        if "DYNO" in os.environ and self.database.startswith("sqlite") and not self.allow_ephemeral_database:
            raise ValueError(
                "DATABASE_URL: a dyno's disk does not outlive a restart; add Postgres with "
                "`heroku addons:create heroku-postgresql`, or set ALLOW_EPHEMERAL_DATABASE=1 to lose all memory daily"
            )
        return self

    def _check_agent(self) -> None:
        of_ours = [name.upper() for name in _OF_OUR_AGENT if name in self.model_fields_set]
        if self.agent and of_ours:
            raise ValueError(
                f"AGENT: an agent that is brought has a name, an instruction and tools of its own: remove "
                f"{', '.join(of_ours)}, or AGENT to run the one that is built in"
            )
        if {"agent_instruction", "agent_instruction_file"} <= self.model_fields_set:
            raise ValueError("AGENT_INSTRUCTION_FILE: there is AGENT_INSTRUCTION beside it: remove one of the two")

    def _check_slack(self) -> None:
        """What Slack is reached by must be whole: one workspace's token or the app's own keys, and a way to hear it."""
        several = bool(self.slack_client_id)
        if several != bool(self.slack_client_secret):
            raise ValueError(
                "SLACK_CLIENT_ID and SLACK_CLIENT_SECRET belong together: copy both at "
                f"{SLACK_APPS}, your app, under Basic Information"
            )
        if several and self.slack_bot_token:
            raise ValueError("SLACK_BOT_TOKEN is for one workspace, and SLACK_CLIENT_ID for several: unset one of them")
        if several and (self.secret_key is None or len(self.secret_key.get_secret_value()) < SHORTEST_KEY):
            raise ValueError(
                f"SECRET_KEY: the tokens of workspaces are kept encrypted with it: set {SHORTEST_KEY} random "
                "characters or more (`openssl rand -hex 32`), and keep them"
            )
        token = "SLACK_BOT_TOKEN" if self.slack_bot_token else "SLACK_CLIENT_ID"
        if not several and not self.slack_bot_token:
            if self.slack_app_token:
                raise ValueError(
                    f"SLACK_BOT_TOKEN is missing beside SLACK_APP_TOKEN: copy it at {SLACK_APPS}, your app, under "
                    "OAuth & Permissions"
                )
            return
        if self.slack_mode == "socket" and not self.slack_app_token:
            raise ValueError(
                f"SLACK_APP_TOKEN is missing beside {token}: make one at {SLACK_APPS}, your app, under "
                "Basic Information, App-Level Tokens (scope connections:write)"
            )
        if self.slack_mode == "http" and not self.slack_signing_secret:
            raise ValueError(
                f"SLACK_SIGNING_SECRET is missing beside SLACK_MODE=http: copy it at {SLACK_APPS}, your app, under "
                "Basic Information, App Credentials"
            )

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'parley.db'}"

    @property
    def sandbox_model(self) -> str:
        """The model that was chosen; where none was and there is no key, the one that needs none."""
        return LOCAL_MODEL if self.model == DEFAULT_MODEL and self.google_api_key is None else self.model

    @property
    def vocabulary_dir(self) -> Path:
        """Where `warm` puts what tokens are counted with."""
        return self.data_dir / "tiktoken"

    @property
    def slack(self) -> SlackSettings | None:
        if self.slack_bot_token is None and not self.slack_client_id:
            return None
        return SlackSettings(
            bot_token=revealed(self.slack_bot_token) or "",
            app_token=revealed(self.slack_app_token) or "",
            api_url=self.slack_api_url,
            streaming=self.slack_streaming,
            direct=self.slack_dm,
            prompts=self.prompts,
            mode=self.slack_mode,
            signing_secret=revealed(self.slack_signing_secret) or "",
            sockets=self.slack_sockets,
            external=self.slack_external,
            client_id=self.slack_client_id,
            client_secret=revealed(self.slack_client_secret) or "",
            answers_bots=self.answer_bots,
            bot_loop_limit=self.bot_loop_limit,
        )

    @property
    def vault_key(self) -> str:
        """What the tokens of several workspaces are encrypted with; empty where there is one."""
        return revealed(self.secret_key) or "" if self.slack_client_id else ""

    @property
    def prompts(self) -> tuple[str, ...]:
        """What is suggested to say to the bot."""
        return tuple(prompt.strip() for prompt in self.suggested_prompts.split("|") if prompt.strip())

    @property
    def discord(self) -> DiscordSettings | None:
        if self.discord_bot_token is None:
            return None
        return DiscordSettings(
            bot_token=self.discord_bot_token.get_secret_value(),
            api_url=self.discord_api_url,
            guilds=frozenset(self.discord_guilds),
            sessions=self.discord_channel_sessions,
            auto_thread=self.discord_auto_thread,
            free_channels=frozenset(self.discord_free_channels),
            silent=self.discord_silent,
            ping_after=self.discord_ping_after,
            shards=0 if self.discord_shards == "auto" else int(self.discord_shards),
        )

    @property
    def allowance(self) -> Allowance:
        return Allowance(most_bytes=self.file_max_mb * 2**20, most_files=self.files_max)

    @property
    def catch_up(self) -> Bounds:
        return Bounds(hours=self.catch_up_hours, messages=self.catch_up_messages)

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(
            google_api_key=revealed(self.google_api_key),
            google_base_url=self.google_base_url,
            openai_api_key=revealed(self.openai_api_key),
            openai_base_url=self.openai_base_url,
            anthropic_api_key=revealed(self.anthropic_api_key),
            anthropic_base_url=self.anthropic_base_url,
        )

    @property
    def agent_config(self) -> AgentConfig:
        """The agent that is built in."""
        file = self.agent_instruction_file
        return AgentConfig(name=self.agent_name, instruction=read(file) if file else self.agent_instruction)

    def secrets(self) -> list[str]:
        """Every value that must not leave the process."""
        values = [value.get_secret_value() for _, value in self if isinstance(value, SecretStr)]
        password = make_url(self.database).password
        return [*values, password] if password else values


def load() -> Settings:
    """The settings, with their secrets remembered for redaction.

    Raises:
        SettingsError: a line for each that is missing, malformed or in contradiction.
    """
    try:
        settings = Settings()
        beside = dotenv(settings.agent) if settings.agent else None
        if beside is not None and beside != Path(".env").resolve():
            files: tuple[Path | str, ...] = (beside, ".env")  # pydantic-settings: the last one holds

            class Beside(Settings):
                model_config = SettingsConfigDict(env_file=files)

            settings = Beside()
    except ValidationError as error:
        raise SettingsError(*(line(fault) for fault in error.errors(include_input=False))) from None
    except UnicodeDecodeError:
        raise SettingsError(".env: it is not UTF-8 text: save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(f".env: it cannot be read ({error.strerror})") from None
    for secret in settings.secrets():
        remember(secret)
    return settings
