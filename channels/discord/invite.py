"""What the bot asks a server for when it is invited: no more than its code needs."""

import base64
import binascii

import discord

from core.errors import SettingsError

SCOPES = ("bot", "applications.commands")

#: See and read, answer in channels and threads, mark what waits, send what is too long as a file.
PERMISSIONS = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    add_reactions=True,
    attach_files=True,
)


def permissions(*, auto_thread: bool) -> discord.Permissions:
    """What the bot needs; to begin threads is a permission of its own."""
    return PERMISSIONS | discord.Permissions(create_public_threads=auto_thread)


def link(application: int, *, auto_thread: bool, guild: int | None = None) -> str:
    """The link that invites the bot, to that server if one is given.

    Args:
        application: the app's id, which is its bot's too.
    """
    server = discord.utils.MISSING if guild is None else discord.Object(guild)
    return discord.utils.oauth_url(
        application, permissions=permissions(auto_thread=auto_thread), scopes=SCOPES, guild=server
    )


def application_of(token: str) -> int:
    """The app's id, which Discord writes into the token of its bot.

    Raises:
        SettingsError: it is no such token.
    """
    first = token.partition(".")[0]
    try:
        return int(base64.b64decode(first + "=" * (-len(first) % 4), validate=True))
    except (binascii.Error, ValueError):
        raise SettingsError("DISCORD_BOT_TOKEN: it is no bot's token; its first part tells no id") from None
