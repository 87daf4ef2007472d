"""Invite link of the bot, with the permissions that it needs."""

import base64
import binascii

import discord

from core.errors import SettingsError

SCOPES = ("bot", "applications.commands")

#: Read messages, reply in channels and threads, add reactions, attach files.
PERMISSIONS = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    add_reactions=True,
    attach_files=True,
)


def required_permissions(*, auto_thread: bool) -> discord.Permissions:
    return PERMISSIONS | discord.Permissions(create_public_threads=auto_thread)


def invite_link(application: int, *, auto_thread: bool, guild: int | None = None) -> str:
    """Return the link with which a user adds the bot to a server, with the `required_permissions`."""
    server = discord.utils.MISSING if guild is None else discord.Object(guild)
    return discord.utils.oauth_url(
        application, permissions=required_permissions(auto_thread=auto_thread), scopes=SCOPES, guild=server
    )


def application_id_of(token: str) -> int:
    """Return the app's id, which the first part of the bot token encodes; else raise `SettingsError`."""
    first = token.partition(".")[0]
    try:
        return int(base64.b64decode(first + "=" * (-len(first) % 4), validate=True))
    except (binascii.Error, ValueError):
        raise SettingsError("DISCORD_BOT_TOKEN: it is no bot's token: its first part is not an id") from None
