"""Settings of Discord."""

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from bot.settings.commands import CommandSection
from bot.settings.parsing import HttpUrl, parse_ids
from channels.discord.settings import DISCORD_API, DiscordSettings, SessionScope

DISCORD_APPS = "https://discord.com/developers/applications"


def _parse_ids(kind: str, hint: str) -> BeforeValidator:
    """Return a validator of comma-separated ids; `hint` in its error says where to copy an id."""
    return BeforeValidator(partial(parse_ids, description=f"ids of {kind}s, separated by commas ({hint})"))


_SERVER_IDS = _parse_ids("server", "right-click a server, Copy Server ID")
_CHANNEL_IDS = _parse_ids("channel", "right-click a channel, Copy Channel ID")


class DiscordSection(CommandSection):
    """Settings of Discord: bot token, API URL, servers, sessions and replies."""

    discord_bot_token: SecretStr | None = None
    discord_api_url: Annotated[HttpUrl, AfterValidator(lambda url: url.rstrip("/"))] = DISCORD_API
    discord_guild_ids: Annotated[tuple[int, ...], NoDecode, _SERVER_IDS] = ()
    discord_channel_sessions: SessionScope = "shared"
    discord_auto_thread: bool = False
    discord_free_channel_ids: Annotated[tuple[int, ...], NoDecode, _CHANNEL_IDS] = ()
    discord_silent_messages: bool = False
    discord_ping_after_seconds: float = Field(default=0, ge=0)
    discord_shard_count: str = Field(
        default="auto", pattern="^(auto|[1-9][0-9]*)$", description="auto or a whole number above 0"
    )

    @field_validator("discord_bot_token")
    @classmethod
    def _validate_discord_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and value.get_secret_value().count(".") != 2:
            raise ValueError(f"it must contain two dots; copy it at {DISCORD_APPS}, your app, under Bot")
        return value

    @property
    def discord(self) -> DiscordSettings | None:
        """Settings for the Discord adapter; None without a bot token."""
        if self.discord_bot_token is None:
            return None
        return DiscordSettings(
            bot_token=self.discord_bot_token.get_secret_value(),
            api_url=self.discord_api_url,
            guilds=frozenset(self.discord_guild_ids),
            sessions=self.discord_channel_sessions,
            auto_thread=self.discord_auto_thread,
            free_channels=frozenset(self.discord_free_channel_ids),
            silent=self.discord_silent_messages,
            ping_after=self.discord_ping_after_seconds,
            command_prefix=self.command_prefix,
            shards=0 if self.discord_shard_count == "auto" else int(self.discord_shard_count),
        )
