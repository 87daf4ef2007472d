"""Session ids, event keys and places of Discord.

A channel is a session, and so is each thread, forum post and direct message.
"""

import discord

from channels.discord.settings import Sessions

#: The channel's name in sessions, inbox and logs.
NAME = "discord"


#: What stands for a server in the places of those who ask where the bot cannot write.
ASIDE = "aside"


#: Colons in the id of a thread's session.
_THREAD_DEPTH = 3


#: Discord counts milliseconds from the first second of 2015, in the upper bits of an id.
_EPOCH = 1_420_070_400.0


_SECOND = 1000 * 2**22


def event_key(channel: int, message: int) -> str:
    """What a message is accepted under, wherever it is answered."""
    return f"{NAME}:{channel}:{message}"


def guild_of(message: discord.Message) -> int | None:
    """The id of the server in which it was said; none for a direct message."""
    if message.guild is not None:
        return message.guild.id
    return message.channel.guild_id if isinstance(message.channel, discord.PartialMessageable) else None


def session_id(guild: int | None, channel: discord.abc.Snowflake, author: int, sessions: Sessions) -> str:
    """A channel is a session, or each author's part of it; each thread (or post of a forum) is its own; so are direct
    messages.
    """
    where = place(guild, channel)
    if isinstance(channel, discord.Thread):
        return f"{where}:{channel.id}"
    return where if guild is None or sessions == "shared" else f"{where}:@{author}"


def aside(user: int, channel: int) -> tuple[str, str]:
    """The place and the session of what somebody asks where the bot cannot write: it is his alone."""
    where = f"{NAME}:{ASIDE}:{user}"
    return where, f"{where}:@{channel}"


def thread_of(session_id: str) -> int | None:
    """The id of the thread that a session is, if it is one."""
    last = session_id.rpartition(":")[2]
    return int(last) if session_id.count(":") == _THREAD_DEPTH and last.isdecimal() else None


def place(guild: int | None, channel: discord.abc.Snowflake) -> str:
    """Where the conversation is: a channel with its threads, direct messages, or a private thread, which has other
    readers than its channel: what is remembered of it is theirs.
    """
    parent = channel.parent_id if isinstance(channel, discord.Thread) and not channel.is_private() else None
    return place_of(guild, parent or channel.id)


def place_of(guild: int | None, channel: int) -> str:
    """The same of the id of a channel that is no thread."""
    return f"{NAME}:dm:{channel}" if guild is None else f"{NAME}:{guild}:{channel}"


def sent_at(snowflake: int) -> float:
    """When the message or interaction with this id was made, in seconds since the epoch."""
    return snowflake / _SECOND + _EPOCH


def snowflake(at: float) -> int:
    """The id that is smaller than those of all messages of that time (seconds since the epoch) and later."""
    return int((at - _EPOCH) * _SECOND)
