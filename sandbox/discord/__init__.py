"""Local Discord with the REST API, the gateway and interactions."""

from sandbox.discord.api.faults import DiscordFaults
from sandbox.discord.events.gateway import GatewaySession
from sandbox.discord.interactions.interaction import DiscordModal
from sandbox.discord.server import DiscordSandbox
from sandbox.discord.state.activity_log import DiscordCallRecord, DiscordEventRecord
from sandbox.discord.state.messages import (
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
    "DiscordSandbox",
    "DiscordUser",
    "GatewaySession",
    "GuildChange",
    "GuildChannel",
]
