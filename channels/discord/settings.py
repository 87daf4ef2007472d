"""Settings of the Discord adapter."""

from dataclasses import dataclass, field
from typing import Literal

DISCORD_API = "https://discord.com/api/v10"

#: Scope of the session of a channel: all authors, or each author.
SessionScope = Literal["shared", "user"]


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """Settings of the Discord adapter.

    Attributes:
        guilds: the ids of the only servers in which the bot answers; empty for all.
        free_channels: the ids of channels in which the bot answers without a mention.
        silent: whether the bot's posts notify nobody.
        ping_after: the author of a message is notified when a reply ends that took more than these seconds; 0 for
            never.
        shards: the number of gateway connections; 0 for the number that Discord recommends.
        command_prefix: the text between the slash and the name of each slash command.
    """

    bot_token: str = field(repr=False)
    api_url: str = DISCORD_API
    guilds: frozenset[int] = frozenset()
    sessions: SessionScope = "shared"
    auto_thread: bool = False
    free_channels: frozenset[int] = frozenset()
    silent: bool = False
    ping_after: float = 0.0
    shards: int = 0
    command_prefix: str = ""
