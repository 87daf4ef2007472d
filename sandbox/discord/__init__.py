"""Local Discord: REST API, gateway, interactions."""

from sandbox.discord.api.faults import Faults
from sandbox.discord.events.gateway import Session
from sandbox.discord.server import DiscordSandbox
from sandbox.discord.state.activity_log import Call, Event
from sandbox.discord.state.guild import Attachment, Change, Channel, Message, User, Version

__all__ = [
    "Attachment",
    "Call",
    "Change",
    "Channel",
    "DiscordSandbox",
    "Event",
    "Faults",
    "Message",
    "Session",
    "User",
    "Version",
]
