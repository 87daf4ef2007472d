"""What the bot is told of Discord."""

from dataclasses import dataclass, field
from typing import Literal

DISCORD_API = "https://discord.com/api/v10"

#: Whose conversation a channel is.
Sessions = Literal["shared", "user"]


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """How to reach Discord.

    Attributes:
        guilds: the ids of the servers that are served; all of them if none is given.
        sessions: whether a channel is one conversation, or one for each person in it.
        auto_thread: whether each new question in a channel is answered in a thread of its own.
        free_channels: the ids of channels in which the bot is called without being mentioned.
        silent: whether what the bot posts notifies nobody.
        ping_after: after how many seconds the end of an answer is told to who asked; 0 for never.
        shards: over how many connections the servers are spread; 0 for as many as Discord recommends.
    """

    bot_token: str = field(repr=False)
    api_url: str = DISCORD_API
    guilds: frozenset[int] = frozenset()
    sessions: Sessions = "shared"
    auto_thread: bool = False
    free_channels: frozenset[int] = frozenset()
    silent: bool = False
    ping_after: float = 0.0
    shards: int = 0
