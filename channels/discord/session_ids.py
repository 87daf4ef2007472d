"""Session ids, event keys and place ids on Discord.

A channel is a session, and so is each thread, forum post and conversation of direct messages. A place is a channel with
its threads, or a conversation of direct messages.
"""

import discord

from channels.discord.settings import SessionScope

#: The platform's name in sessions, inbox and logs.
PLATFORM = "discord"


#: Takes the place of the server id in the place id of a user in channels in which the bot can only send ephemeral
#: messages.
EPHEMERAL = "ephemeral"


#: Colons in the id of a thread's session.
_THREAD_DEPTH = 3


#: Discord counts milliseconds from the first second of 2015, in the upper bits of an id.
_EPOCH_SECONDS = 1_420_070_400.0


_IDS_PER_SECOND = 1000 * 2**22


def event_key(channel: int, message: int) -> str:
    """Return the key by which the inbox stores a message once: the same for each delivery."""
    return f"{PLATFORM}:{channel}:{message}"


def guild_id_of(message: discord.Message) -> int | None:
    """Return the id of the server of a message; None for a direct message."""
    if message.guild is not None:
        return message.guild.id
    return message.channel.guild_id if isinstance(message.channel, discord.PartialMessageable) else None


def session_id(guild: int | None, channel: discord.abc.Snowflake, author: int, scope: SessionScope) -> str:
    """Return the session id of a message.

    A channel is one session, or one per author. Each thread, forum post and conversation of direct messages is a
    session.
    """
    place = place_id(guild, channel)
    if isinstance(channel, discord.Thread):
        return f"{place}:{channel.id}"
    return place if guild is None or scope == "shared" else f"{place}:@{author}"


def ephemeral_ids(user: int, channel: int) -> tuple[str, str]:
    """Return the place id and session id of a user in a channel of ephemeral replies.

    In such a channel, the bot can only respond to interactions, and only by ephemeral messages. All such channels of a
    user have the same place.
    """
    place = f"{PLATFORM}:{EPHEMERAL}:{user}"
    return place, f"{place}:@{channel}"


def thread_id_of(session_id: str) -> int | None:
    """Return the id of the thread that is a session; None if the session is no thread."""
    last = session_id.rpartition(":")[2]
    return int(last) if session_id.count(":") == _THREAD_DEPTH and last.isdecimal() else None


def place_id(guild: int | None, channel: discord.abc.Snowflake) -> str:
    """Return the place id (ADK's `user_id`) of a channel with its threads.

    A conversation of direct messages is a place, too. So is a private thread: it has other readers than its channel,
    so that its memory must be separate.
    """
    parent = channel.parent_id if isinstance(channel, discord.Thread) and not channel.is_private() else None
    return channel_place_id(guild, parent or channel.id)


def channel_place_id(guild: int | None, channel: int) -> str:
    """Return the place id of a channel or private thread, or of direct messages (without a server)."""
    return f"{PLATFORM}:dm:{channel}" if guild is None else f"{PLATFORM}:{guild}:{channel}"


def snowflake_time(snowflake: int) -> float:
    """Return the creation time of the object with a Discord id."""
    return snowflake / _IDS_PER_SECOND + _EPOCH_SECONDS


def time_snowflake(at: float) -> int:
    """Return the lowest id that a Discord object created at a time can have."""
    return int((at - _EPOCH_SECONDS) * _IDS_PER_SECOND)
