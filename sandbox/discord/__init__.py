"""A Discord on this machine: the REST API and the gateway, for tests, benchmarks and a look without an account."""

from sandbox.discord.faults import Faults
from sandbox.discord.gateway import Session
from sandbox.discord.guild import Attachment, Change, Channel, Message, User, Version
from sandbox.discord.journal import Call, Event
from sandbox.discord.server import DiscordSandbox

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
