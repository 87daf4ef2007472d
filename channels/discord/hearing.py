"""What of all that Discord tells is meant for the bot."""

import discord

from channels.discord.text import to_words, without_mention
from channels.intake import Call
from core.inbound import Attachment, Inbound, storable

#: The channel's name in sessions, inbox and logs.
NAME = "discord"

#: What people write; every other type is Discord's own talk (a join, a pin, a boost, ...).
_SPOKEN = (discord.MessageType.default, discord.MessageType.reply)

#: Discord counts milliseconds from the first second of 2015, in the upper bits of an id.
_EPOCH = 1_420_070_400.0
_SECOND = 1000 * 2**22


def is_spoken(message: discord.Message) -> bool:
    """Whether a person wrote it."""
    return not message.author.bot and message.webhook_id is None and message.type in _SPOKEN


def hear(message: discord.Message, bot: discord.abc.User) -> Call | None:
    """The call in a message that a person wrote, if it is one."""
    guild, channel = guild_of(message), message.channel
    role = message.guild.self_role if message.guild else None  # Discord: the bot's own role goes by its name
    is_called = guild is None or bot in message.mentions or (role is not None and role in message.role_mentions)
    if not is_called and not isinstance(channel, discord.Thread):
        return None
    if not (is_called or message.content or message.attachments):  # withheld for want of the intent
        return None
    own = [bot.id] if role is None else [bot.id, role.id]
    inbound = Inbound(
        event_key=f"{NAME}:{channel.id}:{message.id}",
        session_id=session_id(guild, channel),
        place=place(guild, channel),
        channel=NAME,
        address={
            "channel": str(channel.id),
            "message": str(message.id),
            "speaker": message.author.display_name,
            "locale": _locale(message.guild),
        },
        author=str(message.author.id),
        text=storable(_words(message, without_mention(message.content, *own))),
        sent_at=sent_at(message.id),
        attachments=tuple(map(_attachment, message.attachments)),
    )
    return Call(inbound, is_called)


def _locale(guild: discord.Guild | None) -> str:
    """The language of a server. Discord: one that is no community has not chosen any, and is said to speak English."""
    return guild.preferred_locale.value if guild is not None and "COMMUNITY" in guild.features else ""


def guild_of(message: discord.Message) -> int | None:
    """The id of the server in which it was said; none for a direct message."""
    if message.guild is not None:
        return message.guild.id
    return message.channel.guild_id if isinstance(message.channel, discord.PartialMessageable) else None


def session_id(guild: int | None, channel: discord.abc.Snowflake) -> str:
    """A channel is a session, and each thread (or post of a forum) its own; so are direct messages."""
    if isinstance(channel, discord.Thread):
        return f"{place(guild, channel)}:{channel.id}"
    return place(guild, channel)


def place(guild: int | None, channel: discord.abc.Snowflake) -> str:
    """Where the conversation is: a channel with its threads, or direct messages."""
    if guild is None:
        return f"{NAME}:dm:{channel.id}"
    return f"{NAME}:{guild}:{channel.parent_id if isinstance(channel, discord.Thread) else channel.id}"


def sent_at(snowflake: int) -> float:
    """When the message or interaction with this id was made, in seconds since the epoch."""
    return snowflake / _SECOND + _EPOCH


def snowflake(at: float) -> int:
    """The id that is smaller than those of all messages of that time (seconds since the epoch) and later."""
    return int((at - _EPOCH) * _SECOND)


def _attachment(file: discord.Attachment) -> Attachment:
    return Attachment(
        name=storable(file.filename),
        mime_type=file.content_type,
        size=file.size,
        source={"url": file.url, "id": str(file.id)},
    )


def _words(message: discord.Message, text: str) -> str:
    names = {("@", user.id): user.display_name for user in message.mentions}
    names |= {("@&", role.id): role.name for role in message.role_mentions}
    names |= {("#", channel.id): channel.name for channel in message.channel_mentions}
    return to_words(text, names)
