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
    """Return the Discord permissions that the bot needs in a server.

    Args:
        auto_thread: whether the bot starts threads for its replies; adds the permission to create public threads.
    """
    return PERMISSIONS | discord.Permissions(create_public_threads=auto_thread)


def invite_link(application: int, *, auto_thread: bool, guild: int | None = None) -> str:
    """Return the link with which a user adds the bot to a server.

    The link grants the bot the permissions of `required_permissions`.

    Args:
        application: the id of the Discord app, which is also the id of its bot user.
        auto_thread: whether the bot starts threads for its replies; adds the permission to create public threads.
        guild: the id of the server to choose in advance; None lets the user choose.
    """
    server = discord.utils.MISSING if guild is None else discord.Object(guild)
    return discord.utils.oauth_url(
        application, permissions=required_permissions(auto_thread=auto_thread), scopes=SCOPES, guild=server
    )


def application_id_of(token: str) -> int:
    """Return the id of the Discord app, which the first part of the bot token encodes.

    Raises:
        SettingsError: the token has no such part.
    """
    first = token.partition(".")[0]
    try:
        return int(base64.b64decode(first + "=" * (-len(first) % 4), validate=True))
    except (binascii.Error, ValueError):
        raise SettingsError("DISCORD_BOT_TOKEN: it is no bot's token: its first part is not an id") from None
