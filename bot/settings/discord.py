"""Discord's settings."""

from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from bot.settings.base import Part
from bot.settings.parsing import address, ids
from channels.discord.settings import DISCORD_API, DiscordSettings, Sessions

DISCORD_APPS = "https://discord.com/developers/applications"


class DiscordPart(Part):
    """How Discord is reached, and what is done there alone."""

    discord_bot_token: SecretStr | None = None
    discord_api_url: str = DISCORD_API
    discord_guilds: Annotated[tuple[int, ...], NoDecode] = ()
    discord_channel_sessions: Sessions = "shared"
    discord_auto_thread: bool = False
    discord_free_channels: Annotated[tuple[int, ...], NoDecode] = ()
    discord_silent: bool = False
    discord_ping_after: float = Field(default=0, ge=0)
    discord_shards: str = Field(
        default="auto", pattern="^(auto|[1-9][0-9]*)$", description="auto or a whole number above 0"
    )

    @field_validator("discord_bot_token")
    @classmethod
    def _is_discord_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and value.get_secret_value().count(".") != 2:
            raise ValueError(f"it must have two dots in it; copy it at {DISCORD_APPS}, your app, under Bot")
        return value

    @field_validator("discord_guilds", mode="before")
    @classmethod
    def _are_servers(cls, value: object) -> object:
        return ids(value, "ids of servers, with commas in between (right-click a server, Copy Server ID)")

    @field_validator("discord_free_channels", mode="before")
    @classmethod
    def _are_channels(cls, value: object) -> object:
        return ids(value, "ids of channels, with commas in between (right-click a channel, Copy Channel ID)")

    @field_validator("discord_api_url")
    @classmethod
    def _is_discord_address(cls, value: str | None) -> str | None:
        return address(value)

    @field_validator("discord_api_url")
    @classmethod
    def _ends_in_no_slash(cls, value: str) -> str:
        return value.rstrip("/")

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
