"""Local Discord with the REST API, the gateway and interactions."""

from chatrig.discord.api.faults import DiscordFaults
from chatrig.discord.events.gateway import GatewaySession
from chatrig.discord.interactions.interaction import DiscordModal
from chatrig.discord.server import DiscordSimulator
from chatrig.discord.state.activity_log import DiscordCallRecord, DiscordEventRecord
from chatrig.discord.state.messages import (
    DiscordAttachment,
    DiscordMessage,
    DiscordMessageVersion,
    DiscordUser,
    GuildChange,
    GuildChannel,
)

__all__ = [
    "DiscordAttachment",
    "DiscordCallRecord",
    "DiscordEventRecord",
    "DiscordFaults",
    "DiscordMessage",
    "DiscordMessageVersion",
    "DiscordModal",
    "DiscordSimulator",
    "DiscordUser",
    "GatewaySession",
    "GuildChange",
    "GuildChannel",
]
